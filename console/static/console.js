// Look again after some seconds, unless nobody looks or somebody writes.
const seconds = Number(document.documentElement.dataset.every);
const isWriting = () =>
  document.querySelector("form:focus-within") !== null ||
  [...document.querySelectorAll("input")].some((input) => input.value !== input.defaultValue);
if (seconds > 0) {
  setInterval(() => {
    if (!document.hidden && !isWriting()) location.reload();
  }, seconds * 1000);
}
