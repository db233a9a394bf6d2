// Shared by all tabs of a browser, which has only six connections to a host: holds one connection for all tabs
// that show the same, and passes on what it brings. A tab sends {url} to join, and {} to leave.
"use strict";
const streams = new Map(); // by URL
const leave = (port) => {
  for (const [url, s] of streams) {
    if (!s.ports.delete(port) || s.ports.size > 0) continue;
    s.events.close();
    streams.delete(url);
  }
};
const begin = (url) => {
  const s = { ports: new Set(), events: new EventSource(url), state: "lost", part: undefined };
  const tell = (state) => { s.state = state; s.ports.forEach((p) => p.postMessage({ state })); };
  const refuse = () => { s.events.close(); streams.delete(url); tell("refused"); };
  s.events.onopen = () => tell("open");
  s.events.onmessage = (event) => { s.part = event.data; s.ports.forEach((p) => p.postMessage({ part: s.part })); };
  s.events.onerror = () => (s.events.readyState === EventSource.CLOSED ? refuse() : tell("lost"));
  streams.set(url, s);
  return s;
};
self.onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data: { url } }) => {
    leave(port);
    if (!url) return;
    if (typeof EventSource === "undefined") {
      port.postMessage({ state: "refused" });
      return;
    }
    const s = streams.get(url) ?? begin(url);
    s.ports.add(port);
    port.postMessage({ state: s.state });
    if (s.part !== undefined) port.postMessage({ part: s.part });
  };
};
