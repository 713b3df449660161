import { register, useForm } from "./passkeys.js";

useForm((fields) => register(fields.get("label")));
