// Offers the time zone of the browser, and keeps the open page up to date: the server sends the changing
// part as HTML each time it changes. Without this script the page works the same, in UTC, and shows what was
// known when it was opened.
"use strict";
(() => {
  const button = document.getElementById("other-zone");
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (!button || !button.hidden || !zone || zone === "UTC") return;
  button.value = button.textContent = zone;
  button.hidden = false;
})();
(() => {
  const main = document.getElementById("main");
  const part = document.getElementById("live");
  if (!main || !part || !main.dataset.live || !window.EventSource) return;
  const replace = (html) => {
    // What a person has opened, and where the keyboard is, survives.
    const open = [...part.querySelectorAll("details")].map((d) => d.open);
    const stops = () => [...part.querySelectorAll("a[href], summary, button, input, select, [tabindex]")];
    const name = (e) => `${e.tagName} ${e.id} ${e.getAttribute("href")} ${e.getAttribute("aria-label")} ${e.getAttribute("aria-labelledby")}`;
    const before = stops();
    const at = before.indexOf(document.activeElement);
    const same = at < 0 ? [] : before.filter((e) => name(e) === name(before[at]));
    const [wanted, nth] = at < 0 ? ["", 0] : [name(before[at]), same.indexOf(before[at])];
    part.innerHTML = html;
    part.querySelectorAll("details").forEach((d, i) => { d.open = Boolean(open[i]); });
    if (at >= 0) stops().filter((e) => name(e) === wanted)[nth]?.focus({ preventScroll: true });
  };
  // A page without updates must not look as if it were up to date. The server ends each connection
  // after some minutes; the browser then connects again within seconds.
  const lost = document.getElementById("lost");
  let late;
  const onLost = () => { late ??= setTimeout(() => { lost.hidden = false; }, 10000); };
  const calm = () => { clearTimeout(late); late = undefined; };
  let listening = false, events, port;
  const on = {
    open: () => { calm(); lost.hidden = true; },
    lost: onLost,
  };
  const stop = () => {
    calm();
    listening = false;
    events?.close();
    events = undefined;
    port?.postMessage({});
  };
  // All tabs share the connections of a worker. A page whose worker does not get an answer connects itself.
  const alone = () => { port?.postMessage({}); port = undefined; stop(); listen(); };
  try {
    const worker = new SharedWorker(main.dataset.worker);
    worker.onerror = alone;
    port = worker.port;
    port.onmessage = ({ data: { state, part: html } }) => {
      if (!port || !listening) return;
      if (html !== undefined) replace(html);
      else if (state === "refused") alone();
      else on[state]();
    };
  } catch { /* this browser has none */ }
  const listen = () => {
    if (listening || document.hidden) return;
    listening = true;
    onLost(); // until it is open
    if (port) {
      port.postMessage({ url: main.dataset.live });
      return;
    }
    events = new EventSource(main.dataset.live);
    events.onopen = on.open;
    events.onmessage = (event) => replace(event.data);
    events.onerror = () => {
      onLost();
      if (events.readyState !== EventSource.CLOSED) return; // the browser connects again
      events = undefined; // the answer was no stream: the user is not known any more, or too many pages are open
      listening = false;
      setTimeout(listen, 10000);
    };
  };
  // A page that nobody looks at costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    listen();
  });
  // A browser keeps a page that was left, with its connection.
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", listen);
  listen();
})();
