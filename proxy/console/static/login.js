// A one-time link has its secret behind `#`, which no server sees. It is sent by a form, and leaves the history.

import { find } from "./dom.js";
import { logIn, useForm } from "./passkeys.js";

function useLink() {
  const secret = location.hash.slice(1);
  if (!secret) return;
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
