// One stream over a WebSocket, which is opened again when it breaks.

import { forget, post, request, socketOf } from "./api.js";

const FIRST_WAIT = 500; // milliseconds before the first new attempt
const LONGEST_WAIT = 8000;

/**
 * Tells through `handlers`: hello(message), window(message), ack(message), observations(message) of
 * a stream that is watched, refused(message) and state("live" | "wait" | "bad", words).
 */
export class Stream {
  constructor(handlers) {
    this.handlers = handlers;
    this.id = null;
    this.own = false; // made by this page, which then removes it
    this.closed = false;
    this.socket = null;
    this.greeted = false; // before the server has said where it is nothing may be sent
    this.wait = FIRST_WAIT;
    this.timer = 0;
  }

  /** A new stream of our own. We choose its id, so that we can remove it at any moment. */
  async open() {
    const words = crypto.getRandomValues(new Uint32Array(3));
    this.id = `page-${Array.from(words, (word) => word.toString(36)).join("")}`;
    this.own = true;
    await post("v1/streams", { id: this.id });
    if (this.closed) forget(this.id);
    else this.connect();
  }

  /** A stream that is there already. */
  async watch(id) {
    await request(`v1/streams/${encodeURIComponent(id)}`);
    this.id = id;
    if (!this.closed) this.connect();
  }

  get live() {
    return this.greeted && this.socket.readyState === WebSocket.OPEN;
  }

  send(message) {
    this.socket.send(JSON.stringify(message));
  }

  connect() {
    const socket = socketOf(this.id, !this.own);
    this.socket = socket;
    this.greeted = false;
    socket.addEventListener("message", (event) => {
      if (this.socket === socket && !this.closed) this.receive(JSON.parse(event.data));
    });
    socket.addEventListener("close", () => {
      if (this.socket === socket && !this.closed) this.lost();
    });
  }

  receive(message) {
    if (message.type === "hello") {
      this.wait = FIRST_WAIT;
      this.greeted = true;
      this.handlers.state("live", "live");
      this.handlers.hello(message);
    } else if (["window", "ack", "observations"].includes(message.type)) {
      this.handlers[message.type](message);
    } else if (message.type === "error") {
      this.handlers.refused(message);
    }
  }

  lost() {
    this.handlers.state("bad", "connection lost, trying again");
    this.timer = setTimeout(() => this.again(), this.wait);
    this.wait = Math.min(2 * this.wait, LONGEST_WAIT);
  }

  /** The server may have restarted and forgotten the stream: ours is then made anew. */
  async again() {
    const path = `v1/streams/${encodeURIComponent(this.id)}`;
    try {
      await request(path);
    } catch (error) {
      if (this.closed) return;
      if (error.status === 404 && !this.own) {
        this.handlers.state("bad", "the stream is gone");
        return;
      }
      try {
        if (error.status === 404) await post("v1/streams", { id: this.id });
        else throw error;
      } catch {
        if (!this.closed) this.lost();
        return;
      }
    }
    if (!this.closed) this.connect();
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    clearTimeout(this.timer);
    this.socket?.close();
    if (this.own && this.id !== null) forget(this.id);
  }
}
