// A one-time link has its secret behind `#`, which no server sees. It is sent by a form, and leaves the history.

import { find } from "./dom.js";
import { logIn, useForm } from "./passkeys.js";

// Who is logged in already goes on to the session's own pages. One that ended is forgotten: it would lead back here.
function goOn() {
  const place = localStorage.getItem("place");
  if (!place || find(".login > .problem")) return;
  if (new URLSearchParams(location.search).has("ended")) localStorage.removeItem("place");
  else location.replace(place + find("#token-form [name=next]").value);
}

function useLink() {
  const secret = location.hash.slice(1);
  if (!secret) return goOn();
  history.replaceState(null, "", location.pathname + location.search);
  find("#token-form").hidden = true;
  find("#link-form").hidden = false;
  find("#link").value = secret;
  find("#link-form").requestSubmit();
}

// A link that is pasted into this page's own address loads nothing anew.
addEventListener("hashchange", useLink);
useLink();

useForm((fields) => logIn(fields.get("next")));
