// Passkeys: what the server sends and takes is JSON with base64url; what the browser wants is bytes.

import { base, find, post } from "./dom.js";

const bytes = (text) =>
  Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) => letter.charCodeAt(0));
const text = (buffer) =>
  btoa(String.fromCharCode(...new Uint8Array(buffer))).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
const decodeIds = (list) => (list ?? []).map((one) => ({ ...one, id: bytes(one.id) }));

/** Whether this page can use passkeys: browsers bind them to a name, never to an address. */
export const available = () =>
  Boolean(globalThis.PublicKeyCredential) && !/^[\d.]+$|^\[/.test(location.hostname);

function encode(credential) {
  const response = {};
  for (const name of ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"]) {
    if (credential.response[name]) response[name] = text(credential.response[name]);
  }
  return JSON.stringify({
    id: credential.id,
    rawId: text(credential.rawId),
    type: credential.type,
    response,
    clientExtensionResults: {},
  });
}

async function ask(path, fields = {}) {
  const answer = await post(path, fields);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error?.message ?? "It did not work.");
  return body;
}

export async function register(label) {
  const options = await ask(`${base}/sign-in/passkeys/options`);
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    user: { ...options.user, id: bytes(options.user.id) },
    excludeCredentials: decodeIds(options.excludeCredentials),
  };
  const credential = await navigator.credentials.create({ publicKey });
  return ask(`${base}/sign-in/passkeys`, { label, credential: encode(credential) });
}

export async function logIn(next) {
  const options = await ask("/login/passkey/options");
  const publicKey = {
    ...options,
    challenge: bytes(options.challenge),
    allowCredentials: decodeIds(options.allowCredentials),
  };
  const credential = await navigator.credentials.get({ publicKey });
  return ask("/login/passkey", { next, credential: encode(credential) });
}

/** Let the form of passkeys do `act`, then go where its answer says; show what went wrong. */
export function useForm(act) {
  const form = find("#passkey-form");
  if (!form || !available()) return;
  form.hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const problem = find("#passkey-problem");
    problem.hidden = true;
    try {
      location.assign((await act(new FormData(form))).next);
    } catch (error) {
      problem.textContent = error.name === "NotAllowedError" ? "The browser gave no passkey." : error.message;
      problem.hidden = false;
    }
  });
}
