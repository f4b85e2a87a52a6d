// Pause, pin, floor: a small form. The token is held in this module's memory and nowhere else.

import { endOverride, setOverride } from "./api.js";
import { byId, setHidden, setText } from "./dom.js";
import { overrideWords } from "./overview.js";

const SECONDS_PER_MINUTE = 60;
const NOT_ACCEPTED = 401;
const asSentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/[.]?$/, ".")}`;

export class OverrideForm {
  #dialog = byId("override");
  #form = byId("override-form");
  #pool = null;
  #tier = null;
  #busy = false;

  constructor() {
    byId("override-close").addEventListener("click", () => this.#dialog.close());
    byId("override-end").addEventListener("click", () => this.#end());
    this.#form.addEventListener("change", () => this.#fit());
    this.#form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#apply();
    });
  }

  open(tier, pool, view) {
    this.#tier = tier;
    this.#pool = pool.name;
    setText(byId("override-title"), `Override ${pool.name}`);
    const { override } = pool;
    setText(
      byId("override-now"),
      override ? `In force: ${overrideWords(pool, view)}. A new one takes its place.` : "No override is in force.",
    );
    setHidden(byId("override-end"), !override);
    this.#form.elements.replicas.value = override?.replicas ?? pool.desired ?? "";
    this.#say("");
    this.#fit();
    this.#dialog.showModal();
    byId("override-title").focus();
  }

  // a pause has no number
  #fit() {
    const field = this.#form.elements.replicas;
    field.disabled = this.#form.elements.kind.value === "pause";
    setHidden(field.closest("p"), field.disabled);
  }

  #say(text, field = null) {
    for (const input of this.#form.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
    setText(byId("override-said"), text);
    field?.setAttribute("aria-invalid", "true");
    field?.focus();
  }

  // The first thing that is wrong, as {text, field}; null if nothing is.
  #fault() {
    const { kind, replicas, minutes, by, token } = this.#form.elements;
    const whole = (input, least) => /^\d+$/.test(input.value.trim()) && Number(input.value) >= least;
    if (kind.value !== "pause" && !whole(replicas, 0)) {
      return { text: "Say how many replicas, as a whole number.", field: replicas };
    }
    if (!whole(minutes, 1)) return { text: "Say for how many minutes, at least 1: every override ends.", field: minutes };
    if (!by.value.trim()) return { text: "Say who you are, so that others know whom to ask.", field: by };
    return token.value ? null : { text: "A token is needed.", field: token };
  }

  async #apply() {
    const fault = this.#fault();
    if (fault) {
      this.#say(fault.text, fault.field);
      return;
    }
    const { kind, replicas, minutes, by, token } = this.#form.elements;
    const override = {
      kind: kind.value,
      pool: this.#pool,
      for_s: Number(minutes.value) * SECONDS_PER_MINUTE,
      by: by.value.trim(),
    };
    if (kind.value !== "pause") override.replicas = Number(replicas.value);
    await this.#send(() => setOverride(this.#tier, override, token.value));
  }

  async #end() {
    const { token } = this.#form.elements;
    if (!token.value) {
      this.#say("A token is needed.", token);
      return;
    }
    await this.#send(() => endOverride(this.#tier, this.#pool, token.value));
  }

  async #send(request) {
    if (this.#busy) return;
    this.#busy = true;
    this.#say("asking the control plane");
    const { error, status } = await request();
    this.#busy = false;
    if (error) {
      const refused = status === NOT_ACCEPTED;
      this.#say(`${refused ? "The token was not accepted: " : ""}${refused ? error : asSentence(error)}`, refused ? this.#form.elements.token : null);
      return;
    }
    this.#dialog.close();
  }
}
