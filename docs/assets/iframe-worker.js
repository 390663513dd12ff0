// Search where the site is opened from files: browsers start no Worker from a file: address, so its
// script runs in a hidden frame of the page. The theme asks for a script of this name and takes it
// from the web unless it is given one. Read from a server, this does nothing.
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", {data}));
      inside.importScripts = (...each) => each.reduce(
        (before, next) => before.then(() => load(inside.document, next)), Promise.resolve());
      this.frame = frame;
      this.loaded = load(inside.document, new URL(address, location.href).href);
    }

    postMessage(data) {
      this.loaded.then(() => this.frame.contentWindow.dispatchEvent(
        new MessageEvent("message", {data})));
    }

    terminate() {
      this.frame.remove();
    }
  }

  function load(into, address) {
    return new Promise((resolve, reject) => {
      const script = into.createElement("script");
      script.src = address;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`cannot load ${address}`));
      into.body.append(script);
    });
  }

  window.IFrameWorker = window.Worker = IFrameWorker;
})();
