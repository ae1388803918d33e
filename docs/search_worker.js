// A page that was opened as a file may not start a worker. Its script, that of the search, runs in a hidden frame then.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", {data}));
      const load = (address) => new Promise((loaded) => {
        const script = inside.document.createElement("script");
        script.src = new URL(address, document.baseURI);
        script.onload = loaded;
        inside.document.body.append(script);
      });
      inside.importScripts = (...addresses) => addresses.reduce(
        (before, address) => before.then(() => load(address)), Promise.resolve());
      this.ready = load(url);
    }

    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", {data})));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
