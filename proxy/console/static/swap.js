// Parts of a page, drawn anew by the server and put in place of the old ones.
//
// The answer is parsed by XMLHttpRequest, which makes a document whose scripts never run. Turning its text into markup
// in this page would need a Trusted Types policy, and the console has none on purpose.

import { all, csrf, find, localiseTimes } from "./dom.js";

/** Return the document of an address of this console; `fields` are sent as a form. Rejects where it does not answer. */
export function load(path, fields = null) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open(fields ? "POST" : "GET", path);
    request.responseType = "document";
    request.setRequestHeader("accept", "text/html");
    if (fields) {
      request.setRequestHeader("content-type", "application/x-www-form-urlencoded");
      request.setRequestHeader("x-csrf-token", csrf());
    }
    request.addEventListener("load", () => {
      if (request.responseXML) resolve(request.responseXML);
      else reject(new Error(`The console answered ${request.status}.`));
    });
    request.addEventListener("error", () => reject(new Error("The console does not answer.")));
    request.send(fields ? new URLSearchParams(fields).toString() : null);
  });
}

/** Put the element with this id of another document in place of the one of this page; return it. */
export function take(from, id) {
  const fresh = from.getElementById(id);
  const old = find(`#${id}`);
  if (!fresh || !old) return null;
  const open = all("details[open] > summary", old).map((summary) => summary.textContent + summary.closest("section")?.id);
  const made = document.adoptNode(fresh);
  old.replaceWith(made);
  for (const summary of all("details > summary", made))
    if (open.includes(summary.textContent + summary.closest("section")?.id)) summary.parentElement.open = true;
  localiseTimes(made);
  return made;
}
