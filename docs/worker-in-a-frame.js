// Browsers start no worker for a page that is opened from a folder. There, the site's search works in a frame without a face.
if (location.protocol === "file:") {
  window.Worker = class {
    onmessage = null;
    onerror = null;
    #asked = [];
    #frame = document.createElement("iframe");

    constructor(url) {
      this.#frame.hidden = true;
      document.body.append(this.#frame);
      const inner = this.#frame.contentWindow;
      inner.postMessage = (data) => setTimeout((copy) => this.onmessage?.({ data: copy }), 0, structuredClone(data));
      const script = inner.document.createElement("script");
      script.src = url;
      script.onload = () => {
        this.postMessage = (data) => setTimeout((copy) => inner.onmessage?.({ data: copy }), 0, structuredClone(data));
        for (const data of this.#asked.splice(0)) this.postMessage(data);
      };
      script.onerror = (event) => this.onerror?.(event);
      inner.document.head.append(script);
    }

    postMessage(data) {
      this.#asked.push(data);
    }

    terminate() {
      this.#frame.remove();
    }
  };
}
