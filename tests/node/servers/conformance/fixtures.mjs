// What the MCP conformance suite expects a server to offer, told once for both SDKs.
//
// A tool is {inputSchema, run(args, io)}; `io` is how the SDK at hand logs, reports
// progress, asks the client, and closes a stream.
import { setTimeout as delay } from 'node:timers/promises';

const PNG = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const WAV = 'UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAAAAA==';
const PAUSE_MS = 50;

export const text = (value) => ({ type: 'text', text: value });
export const answer = (...content) => ({ content });
const image = { type: 'image', data: PNG, mimeType: 'image/png' };
const audio = { type: 'audio', data: WAV, mimeType: 'audio/wav' };
const embedded = (uri, mimeType, value) => ({ type: 'resource', resource: { uri, mimeType, text: value } });

const noArguments = { type: 'object', properties: {} };
export const object = (properties, required = Object.keys(properties)) => ({ type: 'object', properties, required });
const string = { type: 'string' };

const contentTools = {
  test_simple_text: () => answer(text('This is a simple text response for testing.')),
  test_image_content: () => answer(image),
  test_audio_content: () => answer(audio),
  test_embedded_resource: () =>
    answer(embedded('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  test_multiple_content_types: () =>
    answer(
      text('Multiple content types test:'),
      image,
      embedded('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ),
  test_error_handling: () => ({
    isError: true,
    ...answer(text('This tool intentionally returns an error for testing')),
  }),
};

const liveTools = {
  test_tool_with_logging: async (_args, io) => {
    await io.log('Tool execution started');
    await delay(PAUSE_MS);
    await io.log('Tool processing data');
    await delay(PAUSE_MS);
    await io.log('Tool execution completed');
    return answer(text('logged three times'));
  },
  test_tool_with_progress: async (_args, io) => {
    for (const progress of [0, 50, 100]) {
      await io.progress(progress, 100);
      await delay(PAUSE_MS);
    }
    return answer(text('reported three times'));
  },
  test_reconnection: async (_args, io) => {
    io.closeStream();
    await delay(2 * PAUSE_MS);
    return answer(text('Reconnection test completed successfully'));
  },
};

const elicited = async (io, message, requestedSchema) => {
  const result = await io.elicit({ message, requestedSchema });
  const content = JSON.stringify(result.content ?? {});
  return answer(text(`Elicitation completed: action=${result.action}, content=${content}`));
};

const defaults = object(
  {
    name: { ...string, default: 'John Doe' },
    age: { type: 'integer', default: 30 },
    score: { type: 'number', default: 95.5 },
    status: { ...string, enum: ['active', 'inactive', 'pending'], default: 'active' },
    verified: { type: 'boolean', default: true },
  },
  [],
);

const plain = ['option1', 'option2', 'option3'];
const titled = (noun) =>
  ['First', 'Second', 'Third'].map((nth, index) => ({ const: `value${index + 1}`, title: `${nth} ${noun}` }));
const enums = object(
  {
    untitledSingle: { ...string, enum: plain },
    titledSingle: { ...string, oneOf: titled('Option') },
    legacyEnum: {
      ...string,
      enum: ['opt1', 'opt2', 'opt3'],
      enumNames: ['Option One', 'Option Two', 'Option Three'],
    },
    untitledMulti: { type: 'array', items: { ...string, enum: plain } },
    titledMulti: { type: 'array', items: { anyOf: titled('Choice') } },
  },
  [],
);

const askingTools = {
  test_sampling: {
    inputSchema: object({ prompt: string }),
    run: async ({ prompt }, io) => {
      const reply = await io.sample({ messages: [{ role: 'user', content: text(prompt) }], maxTokens: 100 });
      return answer(text(`LLM response: ${reply.content.text}`));
    },
  },
  test_elicitation: {
    inputSchema: object({ message: string }),
    run: async ({ message }, io) => {
      const requestedSchema = object({ username: string, email: string });
      const { action, content } = await io.elicit({ message, requestedSchema });
      return answer(text(`User response: action: ${action}, content: ${JSON.stringify(content)}`));
    },
  },
  test_elicitation_sep1034_defaults: {
    inputSchema: noArguments,
    run: (_args, io) => elicited(io, 'Please review the defaults', defaults),
  },
  test_elicitation_sep1330_enums: {
    inputSchema: noArguments,
    run: (_args, io) => elicited(io, 'Please choose', enums),
  },
};

const schemaTool = {
  inputSchema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    $defs: {
      address: { $anchor: 'address', type: 'object', properties: { street: string, city: string } },
    },
    properties: { name: string, address: { $ref: '#/$defs/address' } },
    allOf: [{ anyOf: [{ required: ['name'] }, { required: ['address'] }] }],
    if: { required: ['address'] },
    then: { required: ['name'] },
    else: { required: [] },
    additionalProperties: false,
  },
  run: (args) => answer(text(JSON.stringify(args))),
};

const withoutArguments = (runs) =>
  Object.fromEntries(Object.entries(runs).map(([name, run]) => [name, { inputSchema: noArguments, run }]));

/** Tools by name, for every revision. */
export const tools = {
  ...withoutArguments(contentTools),
  ...withoutArguments(liveTools),
  json_schema_2020_12_tool: schemaTool,
};

/** Tools by name that ask the client while they run: revisions before 2026-07-28. */
export const legacyTools = askingTools;

const fixed = {
  'test://static-text': { mimeType: 'text/plain', text: 'This is the content of the static text resource.' },
  'test://static-binary': { mimeType: 'image/png', blob: PNG },
  'test://watched-resource': { mimeType: 'text/plain', text: 'Watched resource content' },
};

export const resources = Object.entries(fixed).map(([uri, { mimeType }]) => ({ uri, name: uri, mimeType }));
export const resourceTemplates = [
  { uriTemplate: 'test://template/{id}/data', name: 'template', mimeType: 'application/json' },
];

/** Give the contents of a resource, or undefined where there is none. */
export const readResource = (uri) => {
  if (fixed[uri]) return { contents: [{ uri, ...fixed[uri] }] };
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (id === undefined) return undefined;
  const data = JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` });
  return { contents: [{ uri, mimeType: 'application/json', text: data }] };
};

const required = (...names) => names.map((name) => ({ name, required: true }));
const user = (...content) => ({ messages: content.map((part) => ({ role: 'user', content: part })) });

/** Prompts by name: {arguments, get(args)}. */
export const prompts = {
  test_simple_prompt: { arguments: [], get: () => user(text('This is a simple prompt for testing.')) },
  test_prompt_with_arguments: {
    arguments: required('arg1', 'arg2'),
    get: ({ arg1, arg2 }) => user(text(`Prompt with arguments: arg1='${arg1}', arg2='${arg2}'`)),
  },
  test_prompt_with_embedded_resource: {
    arguments: required('resourceUri'),
    get: ({ resourceUri }) =>
      user(
        embedded(resourceUri, 'text/plain', 'Embedded resource content for testing.'),
        text('Please process the embedded resource above.'),
      ),
  },
  test_prompt_with_image: { arguments: [], get: () => user(image, text('Please analyze the image above.')) },
};

export const completion = { completion: { values: ['paris', 'park', 'party'], total: 3, hasMore: false } };
