// SDK 1.x behind express.json(): the framework reads the body.
import express from 'express';
import { serve } from './common.mjs';
import { handle } from './v1-common.mjs';

const app = express();
app.use(express.json());
app.all('/mcp', (req, res) => handle(req, res, req.body));
serve(app);
