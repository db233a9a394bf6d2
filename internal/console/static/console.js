// Keeps the open page up to date: the server sends the changing part as HTML each time it changes.
// Without this script the page works the same, and shows what was known when it was opened.
"use strict";
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
  let events;
  const listen = () => {
    if (events || document.hidden) return;
    events = new EventSource(main.dataset.live);
    events.onmessage = (event) => replace(event.data);
    events.addEventListener("end", () => events.close());
  };
  // A page that nobody looks at costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && events) { events.close(); events = undefined; }
    listen();
  });
  // A browser keeps a page that was left, with its connection, of which it has six to a host.
  window.addEventListener("pagehide", () => { events?.close(); events = undefined; });
  window.addEventListener("pageshow", listen);
  listen();
})();
