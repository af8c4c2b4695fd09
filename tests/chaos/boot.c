/* A machine that was booted anew: LD_PRELOAD this, and MGPU_TEST_BOOT names the file that is read for the kernel's boot id. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

static const char *really(const char *path) {
    const char *other = getenv("MGPU_TEST_BOOT");
    return other && path && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? other : path;
}

#define OPEN(name)                                                          \
    int name(const char *path, int flags, ...) {                            \
        static int (*next)(const char *, int, ...);                         \
        if (!next) next = dlsym(RTLD_NEXT, #name);                          \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = va_arg(more, mode_t);                                 \
        va_end(more);                                                       \
        return next(really(path), flags, mode);                             \
    }

#define OPENAT(name)                                                        \
    int name(int directory, const char *path, int flags, ...) {             \
        static int (*next)(int, const char *, int, ...);                    \
        if (!next) next = dlsym(RTLD_NEXT, #name);                          \
        va_list more;                                                       \
        va_start(more, flags);                                              \
        mode_t mode = va_arg(more, mode_t);                                 \
        va_end(more);                                                       \
        return next(directory, really(path), flags, mode);                  \
    }

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
