// The fixtures of 2026-07-28: tools that answer "input required" and are called again.
import { randomBytes } from 'node:crypto';
import { createRequestStateCodec, inputRequired } from '@modelcontextprotocol/server';
import { answer, object, text } from './fixtures.mjs';

const CAPABILITIES = 'io.modelcontextprotocol/clientCapabilities';

/** Signs the state that travels through the client, and refuses it when it was changed. */
export const states = createRequestStateCodec({ key: randomBytes(32) });

const elicit = (message, properties) => ({
  method: 'elicitation/create',
  params: { message, requestedSchema: object(properties) },
});
const sample = (question, maxTokens) => ({
  method: 'sampling/createMessage',
  params: { messages: [{ role: 'user', content: text(question) }], maxTokens },
});
const roots = { method: 'roots/list', params: {} };

const string = { type: 'string' };
const askName = elicit('What is your name?', { name: string });
const askCapital = sample('What is the capital of France?', 100);
const askConfirmation = elicit('Please confirm', { ok: { type: 'boolean' } });

// A response counts when it has what its request asked for; anything else is asked for again.
const satisfies = (request, response) => {
  if (request.method === 'sampling/createMessage') return response?.content !== undefined;
  if (request.method === 'roots/list') return Array.isArray(response?.roots);
  const { required } = request.params.requestedSchema;
  return response?.action === 'accept' && required.every((key) => response.content?.[key] !== undefined);
};

const answered = (requests, ctx) =>
  Object.entries(requests).every(([key, request]) => satisfies(request, ctx.mcpReq.inputResponses?.[key]));

const ask = (inputRequests, requestState) =>
  inputRequired(requestState === undefined ? { inputRequests } : { inputRequests, requestState });

const once = (requests, finish) => (ctx) =>
  answered(requests, ctx) ? finish(ctx.mcpReq.inputResponses) : ask(requests);

const onceWithState = (requests, finish) => async (ctx) =>
  answered(requests, ctx) && ctx.mcpReq.requestState() !== undefined
    ? finish(ctx.mcpReq.inputResponses)
    : ask(requests, await states.mint({ round: 1 }));

const manyRounds = async (ctx) => {
  const first = { step1: elicit('Step 1: What is your name?', { name: string }) };
  const second = { step2: elicit('Step 2: What is your favorite color?', { color: string }) };
  const state = ctx.mcpReq.requestState();
  if (state?.round === 2 && answered(second, ctx)) {
    return answer(text(`${state.name} likes ${ctx.mcpReq.inputResponses.step2.content.color}`));
  }
  if (state?.round === 1 && answered(first, ctx)) {
    const { name } = ctx.mcpReq.inputResponses.step1.content;
    return ask(second, await states.mint({ round: 2, name }));
  }
  return ask(first, await states.mint({ round: 1 }));
};

const whatTheClientCan = (ctx) => {
  const can = ctx.mcpReq.envelope?.[CAPABILITIES] ?? {};
  const requests = {};
  if (can.elicitation) requests.user_name = askName;
  if (can.sampling) requests.capital_question = askCapital;
  return answered(requests, ctx) ? answer(text('all answered')) : ask(requests);
};

const greet = ({ user_name }) => answer(text(`Hello, ${user_name.content.name}!`));

const askTheModel = once({ capital_question: askCapital }, (responses) =>
  answer(text(`LLM response: ${responses.capital_question.content.text}`)),
);

/** Tools by name: the handler takes the request's context. */
export const inputTools = {
  test_input_required_result_elicitation: once({ user_name: askName }, greet),
  test_input_required_result_sampling: askTheModel,
  test_input_required_result_list_roots: once({ client_roots: roots }, ({ client_roots }) =>
    answer(text(`roots: ${client_roots.roots.map((root) => root.uri).join(', ')}`)),
  ),
  test_input_required_result_request_state: onceWithState({ confirm: askConfirmation }, () =>
    answer(text('state-ok')),
  ),
  test_input_required_result_tampered_state: onceWithState({ confirm: askConfirmation }, () =>
    answer(text('state-ok')),
  ),
  test_input_required_result_multiple_inputs: onceWithState(
    { user_name: askName, greeting: sample('Generate a greeting', 50), client_roots: roots },
    greet,
  ),
  test_input_required_result_multi_round: manyRounds,
  test_input_required_result_capabilities: whatTheClientCan,
  test_streaming_elicitation: once({ user_name: askName }, greet),
  // The SDK refuses to ask a client that cannot sample.
  test_missing_capability: askTheModel,
};

/** The prompt that needs input: its handler takes the request's context. */
export const inputPrompt = {
  name: 'test_input_required_result_prompt',
  get: once({ user_context: elicit('What context should the prompt use?', { context: string }) }, (responses) => ({
    messages: [{ role: 'user', content: text(`Context: ${responses.user_context.content.context}`) }],
  })),
};
