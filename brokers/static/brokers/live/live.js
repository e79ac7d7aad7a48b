/* The connection: pictures over a websocket; without one, by asking every few seconds.

   A picture over the socket carries what is new; it is laid into the last one here. Every eighth
   is confirmed, so that the broker sends nothing to whom nothing reaches. */
(function () {
  "use strict";
  const RETRY_MS = [500, 1000, 2000, 5000, 10000, 20000];
  const POLL_MS = 5000;
  const OPEN_MS = 5000;
  const FETCH_MS = 10000;
  const CONFIRM_EVERY = 8;
  const HIDDEN_MS = 60000;
  const SIGNED_OUT = 4401;
  const POINTS_MAX = 180;

  class Live {
    /** `tell` hears {picture} when there is a new one and {mode, reason} when the way changed. */
    constructor({ socket, snapshot, tell }) {
      this.address = socket;
      this.snapshot = snapshot;
      this.tell = tell;
      this.picture = null;
      this.mode = "starting";
      this.failures = 0;
      this.decoder = new TextDecoder();
      document.addEventListener("visibilitychange", () => this.onVisibility());
      addEventListener("online", () => this.connect());
    }

    start() {
      this.connect();
    }

    connect() {
      clearTimeout(this.retry);
      if (this.socket) return;
      let socket;
      try {
        socket = new WebSocket(this.address);
      } catch (error) {
        this.lost(String(error));
        return;
      }
      this.socket = socket;
      socket.binaryType = "arraybuffer";
      let seen = 0;
      const patience = setTimeout(() => socket.close(), OPEN_MS);
      socket.onmessage = (event) => {
        clearTimeout(patience);
        if (this.socket !== socket) return;
        this.failures = 0;
        this.stopPolling();
        this.changeMode("socket", "");
        seen += 1;
        if (seen % CONFIRM_EVERY === 0) socket.send(String(seen));
        this.take(JSON.parse(this.decoder.decode(event.data)));
      };
      socket.onclose = (event) => {
        clearTimeout(patience);
        if (this.socket !== socket) return;
        this.socket = null;
        if (event.code === SIGNED_OUT) {
          location.reload();
          return;
        }
        this.lost(event.code === 1001 ? "the broker is stopping" : "the connection ended");
      };
    }

    /** No socket: ask instead, and try again later. */
    lost(reason) {
      const wait = RETRY_MS[Math.min(this.failures, RETRY_MS.length - 1)];
      this.failures += 1;
      clearTimeout(this.retry);
      if (document.hidden && this.asleep) return;
      this.retry = setTimeout(() => this.connect(), wait * (0.75 + Math.random() / 2));
      if (!this.polling) {
        this.polling = true;
        this.poll(reason);
      }
    }

    async poll(reason) {
      try {
        const answer = await fetch(this.snapshot, {
          redirect: "manual",
          headers: { accept: "application/json" },
          signal: AbortSignal.timeout(FETCH_MS),
        });
        if (answer.type === "opaqueredirect" || answer.status === 403) {
          location.reload();
          return;
        }
        if (!answer.ok) throw new Error(`the broker answers ${answer.status}`);
        const picture = await answer.json();
        if (!this.polling) return;
        this.changeMode("polling", reason);
        this.take(picture);
      } catch (error) {
        if (!this.polling) return;
        const why = error instanceof TypeError ? "the broker cannot be reached" : error.message;
        this.changeMode("none", why);
      }
      this.next = setTimeout(() => this.poll(reason), POLL_MS);
    }

    stopPolling() {
      this.polling = false;
      clearTimeout(this.next);
    }

    /** A page that nobody looks at for a while lets its connection go. */
    onVisibility() {
      clearTimeout(this.sleep);
      if (document.hidden) {
        this.sleep = setTimeout(() => {
          this.asleep = true;
          clearTimeout(this.retry);
          this.stopPolling();
          if (this.socket) this.socket.close();
        }, HIDDEN_MS);
      } else if (this.asleep) {
        this.asleep = false;
        this.failures = 0;
        this.connect();
      }
    }

    changeMode(mode, reason) {
      if (mode === this.mode && reason === this.reason) return;
      this.mode = mode;
      this.reason = reason;
      this.tell({ mode, reason });
    }

    take(received) {
      const whole = "points" in received;
      if (whole || !this.picture) {
        this.picture = { ...received, points: received.points || [] };
      } else {
        const points = [...this.picture.points, received.point].slice(-POINTS_MAX);
        const parts = { ...this.picture.parts, ...received.parts };
        this.picture = { ...received, parts, points };
      }
      this.receivedAt = performance.now();
      this.tell({ picture: this.picture });
    }

    /** How old the picture is, in seconds, by our own clock since it came. */
    age() {
      return this.receivedAt === undefined ? null : (performance.now() - this.receivedAt) / 1000;
    }
  }

  window.Live = Live;
})();
