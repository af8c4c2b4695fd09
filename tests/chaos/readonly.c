/* A disk that turns read-only, as Linux does to one that fails: LD_PRELOAD this. While the file that MGPU_TEST_READONLY names exists,
   no file below the directory MGPU_TEST_ROOT can be written, made, cut, renamed or deleted. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int below(const char *path) {
    const char *root = getenv("MGPU_TEST_ROOT"), *flag = getenv("MGPU_TEST_READONLY");
    return root && flag && path && strncmp(path, root, strlen(root)) == 0 && access(flag, F_OK) == 0;
}

static int refuses(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t got = readlink(link, path, sizeof path - 1);
    if (got < 0) return 0;
    path[got] = 0;
    return below(path);
}

#define REAL(kind, name, ...) static kind (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, #name)
#define REFUSE(condition) if (condition) { errno = EROFS; return -1; }

ssize_t write(int fd, const void *data, size_t bytes) {
    REAL(ssize_t, write, int, const void *, size_t);
    REFUSE(refuses(fd));
    return real(fd, data, bytes);
}
ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    REFUSE(refuses(fd));
    return real(fd, data, bytes, at);
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at) { return pwrite(fd, data, bytes, at); }
int ftruncate(int fd, off_t size) {
    REAL(int, ftruncate, int, off_t);
    REFUSE(refuses(fd));
    return real(fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int rename(const char *from, const char *to) {
    REAL(int, rename, const char *, const char *);
    REFUSE(below(from) || below(to));
    return real(from, to);
}
int unlink(const char *path) {
    REAL(int, unlink, const char *);
    REFUSE(below(path));
    return real(path);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    REFUSE(below(path));
    return real(path, mode);
}
#define MODE() mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    MODE();
    REFUSE((flags & (O_CREAT | O_WRONLY | O_RDWR)) && below(path));
    return real(path, flags, mode);
}
int open64(const char *path, int flags, ...) { MODE(); return open(path, flags, mode); }
