// Counts the seconds that the server has written, by the time that has passed since then: the clock of
// the browser may be wrong.
const shown = document.getElementById("left");
const seconds = Number(shown.dataset.seconds);
const begin = performance.now();
setInterval(() => {
  const left = Math.max(0, Math.ceil(seconds - (performance.now() - begin) / 1000));
  shown.textContent = Math.floor(left / 60) + ":" + String(left % 60).padStart(2, "0");
}, 250);