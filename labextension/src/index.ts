/** The plugins of this extension; each is a file in plugins/. */
import { core } from './plugins/core';
import { jobs } from './plugins/jobs';
import { memory } from './plugins/memory';
import { panel } from './plugins/panel';
import { status } from './plugins/status';

export default [core, panel, jobs, status, memory];
