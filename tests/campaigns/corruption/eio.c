/* Reads of some files fail with EIO, as on a disk that is dying: LD_PRELOAD this, and write a part of the paths into
   the file that EIO_CONTROL names. Where that file is empty or missing, all reads go through. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

static int fails(int fd) {
    char wanted[256], link[64], path[4096];
    const char *control = getenv("EIO_CONTROL");
    int file = control ? open(control, O_RDONLY) : -1;
    if (file < 0) return 0;
    ssize_t length = read(file, wanted, sizeof wanted - 1);
    close(file);
    if (length <= 0) return 0;
    wanted[length] = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strstr(path, wanted) != NULL;
}

#define SHIM(name, parameters, arguments)                                        \
    ssize_t name parameters {                                                    \
        static ssize_t(*real) parameters;                                        \
        if (!real) real = (ssize_t(*) parameters)dlsym(RTLD_NEXT, #name);        \
        if (fails(fd)) {                                                         \
            errno = EIO;                                                         \
            return -1;                                                           \
        }                                                                        \
        return real arguments;                                                   \
    }

SHIM(pread, (int fd, void *buffer, size_t count, off_t offset), (fd, buffer, count, offset))
SHIM(pread64, (int fd, void *buffer, size_t count, off64_t offset), (fd, buffer, count, offset))
SHIM(preadv, (int fd, const struct iovec *pieces, int count, off_t offset), (fd, pieces, count, offset))
SHIM(preadv64, (int fd, const struct iovec *pieces, int count, off64_t offset), (fd, pieces, count, offset))
SHIM(preadv2, (int fd, const struct iovec *pieces, int count, off_t offset, int flags),
     (fd, pieces, count, offset, flags))
SHIM(preadv64v2, (int fd, const struct iovec *pieces, int count, off64_t offset, int flags),
     (fd, pieces, count, offset, flags))
