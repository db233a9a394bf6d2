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
  let events, ended = false;
  // A page without updates must not look as if it were up to date. The server ends each connection
  // after some minutes; the browser then connects again within seconds.
  const lost = document.getElementById("lost");
  let late;
  const onLost = () => { late ??= setTimeout(() => { lost.hidden = false; }, 10000); };
  const onFound = () => { clearTimeout(late); late = undefined; lost.hidden = true; };
  const stop = () => { events?.close(); events = undefined; };
  const listen = () => {
    if (events || ended || document.hidden) return;
    events = new EventSource(main.dataset.live);
    events.onopen = onFound;
    events.onmessage = (event) => replace(event.data);
    events.onerror = () => {
      onLost();
      if (events.readyState !== EventSource.CLOSED) return; // the browser connects again
      stop(); // the answer was no stream: the user is not known any more, or too many pages are open
      setTimeout(listen, 10000);
    };
    events.addEventListener("end", () => { ended = true; onFound(); stop(); });
  };
  // A page that nobody looks at costs nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) stop();
    listen();
  });
  // A browser keeps a page that was left, with its connection, of which it has six to a host.
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", listen);
  listen();
})();
