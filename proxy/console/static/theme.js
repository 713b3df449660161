// Before the page is drawn: a chosen theme must not flash the other one. Not a module, which would wait.
const chosen = localStorage.getItem("theme");
if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
