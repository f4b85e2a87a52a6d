(() => {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const plots = document.querySelectorAll(".plot");
  const touch = matchMedia("(pointer: coarse)").matches;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // the page's own colours, so that a plot reads as the text around it does
  const paint = (layout) => {
    const [ground, ink, quiet, line] = ["--ground", "--ink", "--quiet", "--line"].map(colour);
    layout.font.color = ink;
    layout.hoverlabel = { bgcolor: ground, bordercolor: line, font: { color: ink } };
    for (const axis of [layout.xaxis, layout.yaxis]) {
      Object.assign(axis, { gridcolor: line, linecolor: line, zerolinecolor: line });
      axis.tickfont = { color: quiet };
    }
  };

  figures.forEach(({ data, layout }, index) => {
    layout.dragmode = touch ? false : "zoom";
    paint(layout);
    Plotly.newPlot(plots[index], data, layout, { responsive: true, displayModeBar: false });
  });

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) {
      paint(plot.layout);
      Plotly.react(plot, plot.data, plot.layout);
    }
  });
})();
