/** The plugins of this extension; each is a file in plugins/. */
import { actions } from './plugins/actions';
import { core } from './plugins/core';
import { editing } from './plugins/editing';
import { jobs } from './plugins/jobs';
import { keys } from './plugins/keys';
import { machines } from './plugins/machines';
import { memory } from './plugins/memory';
import { notify } from './plugins/notify';
import { panel } from './plugins/panel';
import { status } from './plugins/status';
import { views } from './plugins/views';

export default [core, panel, views, jobs, editing, actions, machines, status, notify, memory, keys];
