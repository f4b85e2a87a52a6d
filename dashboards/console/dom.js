// A few helpers to build and to mend the page. Text is only ever set as text, never as markup.

export const byId = (id) => document.getElementById(id);

export const make = (tag, attributes = {}, ...children) => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
};

// touches the page only where something changed: a screen reader is not told the same twice
export const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

export const setHidden = (element, hidden) => {
  if (element.hidden !== hidden) element.hidden = hidden;
};

// One child for each item, in order; a child whose key stays is kept, and with it the focus.
export const keyed = (parent, items, keyOf, create, update) => {
  const present = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let previous = null;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = present.get(key);
    present.delete(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    const place = previous ? previous.nextElementSibling : parent.firstElementChild;
    if (place !== child) parent.insertBefore(child, place);
    previous = child;
  }
  for (const child of present.values()) child.remove();
};

// A list of sentences; `none` is what it says when there are none.
export const sentences = (parent, texts, none) => {
  const shown = texts.length ? texts : [none];
  const numbered = shown.map((text, index) => ({ text, key: `${index}:${text}` }));
  keyed(parent, numbered, (s) => s.key, (s) => make("li", {}, s.text), () => {});
};

// Terms and what they are, as a <dl> wants them; every entry is [term, value, class].
export const facts = (parent, entries) => {
  keyed(
    parent,
    entries,
    ([term]) => term,
    ([term]) => make("div", {}, make("dt", {}, term), make("dd")),
    (group, [, value, kind = ""]) => {
      setText(group.lastElementChild, value);
      if (group.className !== kind) group.className = kind;
    },
  );
};

// Columns are {head, cell(row), number, head cell of its row}.
export const table = (caption, columns, rows) =>
  make(
    "table",
    {},
    make("caption", { class: "unseen" }, caption),
    make(
      "thead",
      {},
      make("tr", {}, columns.map((c) => make("th", { scope: "col", class: c.number && "number" }, c.head))),
    ),
    make(
      "tbody",
      {},
      rows.map((row) =>
        make(
          "tr",
          { class: row.rowClass },
          columns.map((c) =>
            make(
              c.rowHead ? "th" : "td",
              { scope: c.rowHead && "row", class: c.number && "number", "data-label": c.head },
              c.cell(row),
            ),
          ),
        ),
      ),
    ),
  );
