/* Clocks that a test sets: LD_PRELOAD this, and MGPU_TEST_CLOCK names a file with nanoseconds to add (int64, native): first to the
   time of day, then to the clock that counts from boot and goes on while a machine sleeps. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*real_clock_gettime)(clockid_t, struct timespec *);
static volatile int64_t *offset;
static int64_t none[2];

__attribute__((constructor)) static void open_clock(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    offset = none;
    const char *path = getenv("MGPU_TEST_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (page != MAP_FAILED) offset = page;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    if (!real_clock_gettime) open_clock();
    int code = real_clock_gettime(id, now);
    int is_wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    if (code == 0 && (is_wall || id == CLOCK_BOOTTIME)) {
        int64_t sum = (int64_t)now->tv_sec * 1000000000 + now->tv_nsec + offset[is_wall ? 0 : 1];
        now->tv_sec = sum / 1000000000;
        now->tv_nsec = sum % 1000000000;
    }
    return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    (void)zone;
    struct timespec precise;
    int code = clock_gettime(CLOCK_REALTIME, &precise);
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return code;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
