// The control plane's events, and how long ago the last one came by this page's own clock.

const FIRST_RETRY_S = 1;
const LAST_RETRY_S = 10;
const SLACK_S = 5;
const TICKS_BEFORE_STALE = 2.5;
const SILENT_BEFORE_FIRST_S = 15;

// Both clocks: one does not run while a machine sleeps, the other can be set.
const now = () => ({ steady: performance.now() / 1000, wall: Date.now() / 1000 });
const since = (then) => {
  const present = now();
  return Math.max(present.steady - then.steady, present.wall - then.wall, 0);
};

export class Feed {
  #source = null;
  #retry = null;
  #retry_s = FIRST_RETRY_S;
  #opened = now();
  #arrived = null;
  #carried_s = 0;
  #epoch = null;
  #tick_s = SILENT_BEFORE_FIRST_S;
  #address;
  #onView;
  #first;

  // `first` says of one tick, {epoch, age_s}, how old it was already.
  constructor(address, onView, first = null) {
    this.#address = address;
    this.#first = first;
    this.#onView = onView;
    this.#open();
  }

  get connected() {
    return this.#source !== null && this.#source.readyState === EventSource.OPEN;
  }

  // null: nothing has come yet.
  get age_s() {
    return this.#arrived === null ? null : since(this.#arrived) + this.#carried_s;
  }

  get staleAfter_s() {
    return TICKS_BEFORE_STALE * this.#tick_s + SLACK_S;
  }

  get stale() {
    return this.#arrived !== null && this.age_s > this.staleAfter_s;
  }

  // An open connection that says nothing is as good as none: ask anew.
  watch() {
    const quiet_s = Math.min(since(this.#opened), this.#arrived === null ? Infinity : since(this.#arrived));
    if (this.#source !== null && quiet_s > this.staleAfter_s) {
      this.#close();
      this.#open();
    }
  }

  stop() {
    this.#close();
  }

  #open() {
    this.#opened = now();
    const source = new EventSource(this.#address);
    source.addEventListener("view", (event) => {
      let view;
      try {
        view = JSON.parse(event.data);
      } catch {
        return; // half a message is no message; its age goes on growing
      }
      this.#dated(view);
      this.#tick_s = view.tick_s ?? this.#tick_s;
      this.#retry_s = FIRST_RETRY_S;
      this.#onView(view);
    });
    source.addEventListener("error", () => {
      if (source.readyState !== EventSource.CLOSED) return; // the browser tries again itself
      this.#close();
      this.#retry = setTimeout(() => this.#open(), this.#retry_s * 1000);
      this.#retry_s = Math.min(LAST_RETRY_S, this.#retry_s * 2);
    });
    this.#source = source;
  }

  // The same tick again, after a reconnection or an override, is not newer for having come again.
  #dated(view) {
    if (view.epoch === this.#epoch) return;
    this.#epoch = view.epoch;
    this.#arrived = now();
    this.#carried_s = view.age_s ?? (this.#first?.epoch === view.epoch ? this.#first.age_s : 0);
  }

  #close() {
    clearTimeout(this.#retry);
    this.#source?.close();
    this.#source = null;
  }
}
