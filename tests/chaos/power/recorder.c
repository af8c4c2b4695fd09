/* Writes down what a program does to files below a directory, and what it sends, in the order in which it happened.

   LD_PRELOAD this. MGPU_TEST_TRACE names the trace, MGPU_TEST_ROOT the directory. With MGPU_TEST_BOOT a keeper reads the machine's
   boot id from that file, so that a start can be the first after a boot. Jobs (MGPU_JOB_ID is set) are left alone.

   A change is written down after it was made and a sync after it returned, a send before it is made: what the trace has in front of
   a send was on disk before anybody could see it. One lock for each process keeps the order of its threads; programs share no file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define FDS 65536
#define SENT_LIMIT 65536

struct head {
    uint32_t op, pid, path_bytes, data_bytes;
    uint64_t at_ns, inode;
    int64_t offset;
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static int trace = -1;
static const char *root, *boot;
static size_t root_bytes;
static char *paths[FDS]; /* of descriptors below the root */
static uint64_t inodes[FDS];

#define REAL(kind, name, ...) static kind (*real_##name)(__VA_ARGS__)
REAL(int, open, const char *, int, ...);
REAL(int, openat, int, const char *, int, ...);
REAL(int, close, int);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);
REAL(int, ftruncate, int, off_t);
REAL(int, rename, const char *, const char *);
REAL(int, unlink, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdir, const char *, mode_t);
REAL(int, rmdir, const char *);
REAL(ssize_t, send, int, const void *, size_t, int);
REAL(ssize_t, sendto, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
REAL(ssize_t, sendmsg, int, const struct msghdr *, int);
REAL(int, fallocate, int, int, off_t, off_t);

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void after_fork(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
    pthread_mutex_t fresh = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    memcpy(&lock, &fresh, sizeof lock);
}

static int is_keeper(void) {
    char words[4096];
    int file = real_open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    ssize_t got = file < 0 ? 0 : read(file, words, sizeof words);
    if (file >= 0) real_close(file);
    return got > 0 && memmem(words, (size_t)got, "mgpu_agent.keeper", 17) != NULL;
}

__attribute__((constructor)) static void begin(void) {
#define FIND(name) real_##name = dlsym(RTLD_NEXT, #name)
    if (real_open) return;
    FIND(openat); FIND(close); FIND(write); FIND(writev); FIND(pwrite); FIND(fsync); FIND(fdatasync); FIND(ftruncate); FIND(rename);
    FIND(unlink); FIND(unlinkat); FIND(mkdir); FIND(rmdir); FIND(send); FIND(sendto); FIND(sendmsg); FIND(fallocate); FIND(open);
    if (is_keeper()) boot = getenv("MGPU_TEST_BOOT"); /* whose boot id is the node's */
    root = getenv("MGPU_TEST_ROOT");
    const char *path = getenv("MGPU_TEST_TRACE");
    if (!root || !path || getenv("MGPU_JOB_ID")) return;
    root_bytes = strlen(root);
    int file = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    trace = file < 0 ? -1 : fcntl(file, F_DUPFD_CLOEXEC, 900); /* out of the way of what counts descriptors */
    if (file >= 0) real_close(file);
    pthread_atfork(before_fork, after_fork, in_child);
}

static void note(char op, uint64_t inode, int64_t offset, const char *path, const void *data, size_t bytes) {
    if (trace < 0) return;
    int kept = errno;
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    struct head head = {(uint32_t)op, (uint32_t)getpid(), (uint32_t)strlen(path), (uint32_t)bytes,
                        (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec, inode, offset};
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)path, head.path_bytes}, {(void *)data, bytes}};
    if (real_writev(trace, parts, 3) != (ssize_t)(sizeof head + head.path_bytes + bytes)) abort();
    errno = kept;
}

/* The path below the root, without it; NULL for all others. The result lives until the next call. */
static const char *below(int directory, const char *path) {
    static char whole[2 * PATH_MAX];
    if (trace < 0 || !path) return NULL;
    if (path[0] == '/') snprintf(whole, sizeof whole, "%s", path);
    else {
        char link[64], base[PATH_MAX];
        snprintf(link, sizeof link, directory == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", directory);
        ssize_t got = readlink(link, base, sizeof base - 1);
        if (got < 0) return NULL;
        base[got] = 0;
        snprintf(whole, sizeof whole, "%s/%s", base, path);
    }
    if (strncmp(whole, root, root_bytes) != 0 || (whole[root_bytes] != '/' && whole[root_bytes] != 0)) return NULL;
    char *tail = whole + root_bytes;
    while (*tail == '/') tail++;
    size_t length = strlen(tail);
    while (length && tail[length - 1] == '/') tail[--length] = 0;
    return tail;
}

static uint64_t inode_of(int fd) {
    struct stat info;
    return fstat(fd, &info) == 0 ? (uint64_t)info.st_ino : 0;
}

/* Descriptors are closed in ways that nobody sees (closedir, close_range), and their numbers given to others. */
static int watched(int fd) { return trace >= 0 && fd >= 0 && fd < FDS && paths[fd] != NULL && inode_of(fd) == inodes[fd]; }

static int opened(int directory, const char *path, int flags, mode_t mode) {
    if (boot && path && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0) path = boot;
    if (trace < 0) return real_openat(directory, path, flags, mode);
    pthread_mutex_lock(&lock);
    const char *tail = (flags & O_TMPFILE) == O_TMPFILE ? NULL : below(directory, path); /* without a name nobody finds it again */
    struct stat before;
    int is_new = tail && (flags & O_CREAT) && fstatat(directory, path, &before, 0) != 0;
    int fd = real_openat(directory, path, flags, mode);
    if (fd >= 0 && fd < FDS) {
        free(paths[fd]);
        paths[fd] = tail ? strdup(tail) : NULL;
        inodes[fd] = tail ? inode_of(fd) : 0;
        if (is_new) note('C', inode_of(fd), 0, tail, "", 0);
        else if (tail && (flags & O_TRUNC)) note('T', inode_of(fd), 0, tail, "", 0);
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

#define MODE() mode_t mode = 0; if (flags & (O_CREAT | O_TMPFILE)) { va_list more; va_start(more, flags); mode = va_arg(more, mode_t); va_end(more); }
int open(const char *path, int flags, ...) { if (!real_open) begin(); MODE(); return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { if (!real_open) begin(); MODE(); return opened(AT_FDCWD, path, flags, mode); }
int openat(int directory, const char *path, int flags, ...) { if (!real_open) begin(); MODE(); return opened(directory, path, flags, mode); }
int openat64(int directory, const char *path, int flags, ...) { if (!real_open) begin(); MODE(); return opened(directory, path, flags, mode); }

int close(int fd) {
    if (!real_close) begin();
    if (fd == trace && fd >= 0) { errno = EBADF; return -1; } /* who closes all descriptors does not mean this one */
    if (!watched(fd)) return real_close(fd);
    pthread_mutex_lock(&lock);
    free(paths[fd]);
    paths[fd] = NULL;
    int code = real_close(fd);
    pthread_mutex_unlock(&lock);
    return code;
}

static void note_sent(const void *data, size_t bytes) {
    if (trace < 0) return;
    int is_answer = bytes > 7 && memcmp(data, "HTTP/1.", 7) == 0;
    note('S', 0, (int64_t)bytes, "", data, is_answer ? (bytes < SENT_LIMIT ? bytes : SENT_LIMIT) : 0);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    if (!real_write) begin();
    if (!watched(fd)) return real_write(fd, data, bytes);
    pthread_mutex_lock(&lock);
    ssize_t done = real_write(fd, data, bytes);
    if (done > 0) note('W', inode_of(fd), lseek(fd, 0, SEEK_CUR) - done, paths[fd], data, (size_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!real_writev) begin();
    if (watched(fd)) abort(); /* nobody does so today; it must not go unseen */
    return real_writev(fd, parts, count);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (!real_pwrite) begin();
    if (!watched(fd)) return real_pwrite(fd, data, bytes, offset);
    pthread_mutex_lock(&lock);
    ssize_t done = real_pwrite(fd, data, bytes, offset);
    if (done > 0) note('W', inode_of(fd), offset, paths[fd], data, (size_t)done);
    pthread_mutex_unlock(&lock);
    return done;
}
ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t offset) { return pwrite(fd, data, bytes, offset); }

static int synced(int fd, int (*real)(int)) {
    if (!watched(fd)) return real(fd);
    pthread_mutex_lock(&lock);
    int code = real(fd);
    if (code == 0) note('F', inode_of(fd), 0, paths[fd], "", 0);
    pthread_mutex_unlock(&lock);
    return code;
}
int fsync(int fd) { if (!real_fsync) begin(); return synced(fd, real_fsync); }
int fdatasync(int fd) { if (!real_fdatasync) begin(); return synced(fd, real_fdatasync); }

int ftruncate(int fd, off_t size) {
    if (!real_ftruncate) begin();
    if (!watched(fd)) return real_ftruncate(fd, size);
    pthread_mutex_lock(&lock);
    int code = real_ftruncate(fd, size);
    if (code == 0) note('T', inode_of(fd), size, paths[fd], "", 0);
    pthread_mutex_unlock(&lock);
    return code;
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (!real_fallocate) begin();
    if (watched(fd) && !(mode & FALLOC_FL_KEEP_SIZE)) abort(); /* holes are what unsynced writes look like; a new size is not */
    return real_fallocate(fd, mode, offset, bytes);
}

int rename(const char *from, const char *to) {
    if (!real_rename) begin();
    if (trace < 0) return real_rename(from, to);
    pthread_mutex_lock(&lock);
    const char *tail = below(AT_FDCWD, from);
    char *old = tail ? strdup(tail) : NULL;
    int code = real_rename(from, to);
    tail = below(AT_FDCWD, to);
    if (code == 0 && (old != NULL) != (tail != NULL)) abort(); /* across the root */
    if (code == 0 && old) note('R', 0, 0, old, tail, strlen(tail));
    free(old);
    pthread_mutex_unlock(&lock);
    return code;
}

#define ON_NAME(name, op, directory, call) \
    if (!real_##name) begin(); \
    if (trace < 0) return real_##name call; \
    pthread_mutex_lock(&lock); \
    int code = real_##name call; \
    const char *tail = below(directory, path); \
    if (code == 0 && tail) note(op, 0, 0, tail, "", 0); \
    pthread_mutex_unlock(&lock); \
    return code;
int unlink(const char *path) { ON_NAME(unlink, 'U', AT_FDCWD, (path)) }
int rmdir(const char *path) { ON_NAME(rmdir, 'U', AT_FDCWD, (path)) }
int mkdir(const char *path, mode_t mode) { ON_NAME(mkdir, 'D', AT_FDCWD, (path, mode)) }
int unlinkat(int directory, const char *path, int flags) { ON_NAME(unlinkat, 'U', directory, (directory, path, flags)) }

ssize_t send(int fd, const void *data, size_t bytes, int flags) {
    if (!real_send) begin();
    note_sent(data, bytes);
    return real_send(fd, data, bytes, flags);
}
ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to, socklen_t to_bytes) {
    if (!real_sendto) begin();
    note_sent(data, bytes);
    return real_sendto(fd, data, bytes, flags, to, to_bytes);
}
ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    if (!real_sendmsg) begin();
    if (message->msg_iovlen) note_sent(message->msg_iov[0].iov_base, message->msg_iov[0].iov_len);
    return real_sendmsg(fd, message, flags);
}
