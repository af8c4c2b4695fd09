/* A stand-in for NVIDIA's management library: answers from a state file that is read again at every call.
 *
 * The file named by NVML_STAND_IN has one thing a line:
 *   down CODE                     every call, the initialisation too, answers CODE
 *   generation N                  calls answer "uninitialised" until the library is initialised after N changed
 *   hang 1                        calls answer only when this line is gone
 *   deny FUNCTION CODE            this function answers CODE
 *   gpu SLOT UUID NAME BUS TOTAL USED UTIL TEMP MILLIWATTS FAULT MIG PARENT   (NAME has _ for blanks; PARENT -1: a whole GPU)
 *   process SLOT PID BYTES KIND   KIND is c (compute) or g (graphics)
 *   link SLOT BUS                 one active link; BUS is a PCI address or "switch"
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, UNKNOWN = 999 };
#define GPUS 32
#define THINGS 64

typedef struct { int slot; char uuid[96], name[96], bus[32]; unsigned long long total, used; unsigned util, temp, power; int fault, mig, parent; } gpu_t;
typedef struct { int slot; unsigned pid; unsigned long long bytes; char kind; } process_t;
typedef struct { int slot; char bus[32]; } link_t;
typedef struct { char function[64]; int code; } deny_t;
typedef struct { int down, generation, hang, gpus, processes, links, denials; gpu_t gpu[GPUS]; process_t process[THINGS]; link_t link[THINGS]; deny_t deny[THINGS]; } state_t;

typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { unsigned pid; unsigned long long bytes; unsigned gpu_instance, compute_instance; } process_info_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned gpu, memory; } rates_t;

static int initialised = -1; /* the generation for which it was */

static int read_once(state_t *s) {
    const char *path = getenv("NVML_STAND_IN");
    FILE *file = path ? fopen(path, "r") : NULL;
    char line[512];
    memset(s, 0, sizeof *s);
    if (!file) { s->down = UNKNOWN; return 0; }
    while (fgets(line, sizeof line, file)) {
        gpu_t *g = &s->gpu[s->gpus];
        process_t *p = &s->process[s->processes];
        link_t *l = &s->link[s->links];
        deny_t *d = &s->deny[s->denials];
        if (sscanf(line, "down %d", &s->down) == 1 || sscanf(line, "generation %d", &s->generation) == 1 ||
            sscanf(line, "hang %d", &s->hang) == 1)
            continue;
        if (s->gpus < GPUS && sscanf(line, "gpu %d %95s %95s %31s %llu %llu %u %u %u %d %d %d", &g->slot, g->uuid, g->name, g->bus, &g->total,
                   &g->used, &g->util, &g->temp, &g->power, &g->fault, &g->mig, &g->parent) == 12) {
            for (char *c = g->name; *c; c++) if (*c == '_') *c = ' ';
            s->gpus++;
        } else if (s->processes < THINGS && sscanf(line, "process %d %u %llu %c", &p->slot, &p->pid, &p->bytes, &p->kind) == 4) s->processes++;
        else if (s->links < THINGS && sscanf(line, "link %d %31s", &l->slot, l->bus) == 2) s->links++;
        else if (s->denials < THINGS && sscanf(line, "deny %63s %d", d->function, &d->code) == 2) s->denials++;
    }
    fclose(file);
    return 1;
}

static void read_state(state_t *s) {
    while (read_once(s) && s->hang) usleep(20000);
}

static int enter(state_t *s, const char *function) {
    read_state(s);
    if (s->down) return s->down;
    if (initialised != s->generation) return UNINITIALIZED;
    for (int i = 0; i < s->denials; i++) if (!strcmp(s->deny[i].function, function)) return s->deny[i].code;
    return OK;
}

static int find(state_t *s, const char *function, void *handle, gpu_t **found) {
    int code = enter(s, function), slot = (int)(long)handle - 1;
    if (code) return code;
    for (int i = 0; i < s->gpus; i++)
        if (s->gpu[i].slot == slot) {
            *found = &s->gpu[i];
            return s->gpu[i].fault;
        }
    return INVALID;
}

#define GPU(handle) state_t s; gpu_t *g; int code = find(&s, __func__, handle, &g); if (code) return code

int nvmlInitWithFlags(unsigned flags) {
    state_t s;
    (void)flags;
    read_state(&s);
    if (!s.down) initialised = s.generation;
    return s.down;
}

int nvmlShutdown(void) { initialised = -1; return OK; }

const char *nvmlErrorString(int code) { return code == UNKNOWN ? "Unknown Error" : "Error of the stand-in"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    state_t s;
    int code = enter(&s, __func__);
    if (code) return code;
    *count = 0;
    for (int i = 0; i < s.gpus; i++) *count += s.gpu[i].parent < 0;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle) {
    state_t s;
    int code = enter(&s, __func__);
    if (code) return code;
    for (int i = 0; i < s.gpus; i++)
        if (s.gpu[i].parent < 0 && index-- == 0) {
            *handle = (void *)(long)(s.gpu[i].slot + 1);
            return s.gpu[i].fault;
        }
    return INVALID;
}

int nvmlDeviceGetName(void *h, char *text, unsigned size) { GPU(h); snprintf(text, size, "%s", g->name); return OK; }
int nvmlDeviceGetUUID(void *h, char *text, unsigned size) { GPU(h); snprintf(text, size, "%s", g->uuid); return OK; }
int nvmlDeviceGetUtilizationRates(void *h, rates_t *r) { GPU(h); if (g->parent >= 0) return NOT_SUPPORTED; r->gpu = g->util; r->memory = 0; return OK; }
#ifndef WITHOUT_TEMPERATURE
int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *t) { (void)sensor; GPU(h); if (g->parent >= 0) return NOT_SUPPORTED; *t = g->temp; return OK; }
#endif
int nvmlDeviceGetPowerUsage(void *h, unsigned *p) { GPU(h); if (g->parent >= 0) return NOT_SUPPORTED; *p = g->power; return OK; }
int nvmlDeviceGetMemoryInfo(void *h, memory_t *m) { GPU(h); m->total = g->total; m->used = g->used; m->free = g->total - g->used; return OK; }
int nvmlDeviceGetMemoryInfo_v2(void *h, memory_v2_t *m) { GPU(h); m->total = g->total; m->used = g->used; m->free = g->total - g->used; m->reserved = 0; return OK; }
int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *later) { GPU(h); *now = *later = g->mig; return OK; }
int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *count) { GPU(h); *count = g->mig ? 7 : 0; return OK; }

int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **mig) {
    GPU(h);
    for (int i = 0; i < s.gpus; i++)
        if (s.gpu[i].parent == g->slot && index-- == 0) {
            *mig = (void *)(long)(s.gpu[i].slot + 1);
            return OK;
        }
    return NOT_FOUND;
}

static int pci(pci_t *p, const char *bus) {
    memset(p, 0, sizeof *p);
    snprintf(p->bus_id, sizeof p->bus_id, "%s", bus);
    return OK;
}

int nvmlDeviceGetPciInfo_v3(void *h, pci_t *p) { GPU(h); return pci(p, g->bus); }

static link_t *link_of(state_t *s, gpu_t *g, unsigned number) {
    for (int i = 0; i < s->links; i++) if (s->link[i].slot == g->slot && number-- == 0) return &s->link[i];
    return NULL;
}

int nvmlDeviceGetNvLinkState(void *h, unsigned n, unsigned *active) {
    GPU(h);
    if (!link_of(&s, g, 0)) return NOT_SUPPORTED;
    *active = link_of(&s, g, n) != NULL;
    return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(void *h, unsigned n, unsigned *kind) {
    GPU(h);
    link_t *l = link_of(&s, g, n);
    if (!l) return INVALID;
    *kind = strcmp(l->bus, "switch") ? 0 : 2;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *h, unsigned n, pci_t *p) { GPU(h); link_t *l = link_of(&s, g, n); return l ? pci(p, l->bus) : INVALID; }

static int processes(state_t *s, gpu_t *g, char kind, unsigned *count, process_info_t *list) {
    unsigned found = 0;
    for (int i = 0; i < s->processes; i++) {
        process_t *p = &s->process[i];
        if (p->slot != g->slot || p->kind != kind) continue;
        if (list && found < *count) list[found] = (process_info_t){p->pid, p->bytes, 0, 0};
        found++;
    }
    int fits = list ? found <= *count : found == 0;
    *count = found;
    return fits ? OK : TOO_SMALL;
}

#ifndef WITHOUT_PROCESSES
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, unsigned *count, process_info_t *list) { GPU(h); return processes(&s, g, 'c', count, list); }
#endif
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, unsigned *count, process_info_t *list) { GPU(h); return processes(&s, g, 'g', count, list); }
