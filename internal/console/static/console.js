// Offers the time zone of the browser, and keeps the open page up to date: it asks each five seconds for the changing
// part, which is HTML. Without this script the page works the same, in UTC, and shows what was
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
  if (!main || !part || !main.dataset.live) return;
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
  // A page without updates must not look as if it were up to date.
  const lost = document.getElementById("lost");
  let shown, failing, asking = false;
  const update = async () => {
    if (document.hidden || asking) return; // a page that nobody looks at costs nothing
    asking = true;
    try {
      // A proxy may lead a user whom it does not know any more to another page.
      const answer = await fetch(main.dataset.live, { redirect: "error", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(answer.statusText);
      const html = await answer.text();
      if (html !== shown) replace(html);
      shown = html;
      failing = undefined;
      lost.hidden = true;
    } catch {
      failing ??= Date.now();
      lost.hidden = Date.now() - failing < 10000;
    }
    asking = false;
  };
  setInterval(update, 5000);
  document.addEventListener("visibilitychange", update);
  window.addEventListener("pageshow", update);
})();
