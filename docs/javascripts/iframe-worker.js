// Browsers refuse workers to pages that are opened from disk. There, a hidden frame takes the worker's place, so that
// the search works without a server. (The theme would load such a script from elsewhere.)
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.onmessage = null;
      this.frame = document.createElement("iframe");
      this.frame.style.display = "none";
      document.body.appendChild(this.frame);
      const page = this.frame.contentDocument;
      const inside = this.frame.contentWindow;
      inside.importScripts = (...urls) =>
        urls.reduce(
          (before, source) => before.then(() => new Promise((done, failed) => load(page, source, done, failed))),
          Promise.resolve(),
        );
      // What the worker posts goes to the page; what the page posts is an event of the frame.
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      this.ready = new Promise((done, failed) => load(page, url, done, failed));
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.frame.remove();
    }
  };

  const load = (page, source, done, failed) => {
    const script = page.createElement("script");
    script.src = source;
    script.onload = done;
    script.onerror = failed;
    page.head.appendChild(script);
  };
}
