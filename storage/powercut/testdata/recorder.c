// Recorder for the power-cut test, preloaded into the process under test. Whatever that process does to the files of
// the store is appended to a log, in the order in which it was done, with the data. The n-th sync of a file can be made to fail.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OP_WRITE = 1, OP_TRUNCATE, OP_SYNC, OP_UNLINK };

struct header {
	uint32_t op, path_len;
	uint64_t offset, len;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *dir; // of the store
static size_t dir_len;
static int log_fd = -1;
static long fail_sync, syncs;

__attribute__((constructor)) static void start(void) {
	const char *log = getenv("POWERCUT_LOG"), *n = getenv("POWERCUT_FAIL_SYNC");
	dir = getenv("POWERCUT_DIR");
	if (!log || !dir)
		return;
	dir_len = strlen(dir);
	fail_sync = n ? atol(n) : 0;
	log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

// name gives the path below the store's directory, "" for the directory itself, NULL for what is none of ours.
static const char *name(const char *path) {
	if (log_fd < 0 || strncmp(path, dir, dir_len) != 0 || (path[dir_len] != '/' && path[dir_len] != 0))
		return NULL;
	path += dir_len;
	while (*path == '/')
		path++;
	if (*path == 0)
		return path;
	return strncmp(path, "apollo.db", 9) == 0 && !strstr(path, "-shm") ? path : NULL;
}

static const char *name_of(int fd, char *buffer, size_t size) {
	char link[64];
	if (log_fd < 0)
		return NULL;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, buffer, size - 1);
	if (n < 0)
		return NULL;
	buffer[n] = 0;
	return name(buffer);
}

static void record(uint32_t op, const char *path, uint64_t offset, const void *data, uint64_t len) {
	struct header h = {op, (uint32_t)strlen(path), offset, len};
	struct iovec v[3] = {{&h, sizeof h}, {(void *)path, h.path_len}, {(void *)data, data ? len : 0}};
	if (!data)
		h.len = 0;
	if (writev(log_fd, v, 3) != (ssize_t)(sizeof h + h.path_len + h.len))
		abort();
}

static ssize_t put(int fd, const void *data, size_t len, int64_t offset) {
	char buffer[4096];
	const char *path = name_of(fd, buffer, sizeof buffer);
	if (!path)
		return offset < 0 ? syscall(SYS_write, fd, data, len) : syscall(SYS_pwrite64, fd, data, len, offset);
	pthread_mutex_lock(&lock);
	int64_t at = offset < 0 ? lseek(fd, 0, SEEK_CUR) : offset;
	ssize_t n = offset < 0 ? syscall(SYS_write, fd, data, len) : syscall(SYS_pwrite64, fd, data, len, offset);
	int kept = errno;
	if (n > 0)
		record(OP_WRITE, path, (uint64_t)at, data, (uint64_t)n);
	errno = kept;
	pthread_mutex_unlock(&lock);
	return n;
}

ssize_t write(int fd, const void *data, size_t len) { return put(fd, data, len, -1); }
ssize_t pwrite(int fd, const void *data, size_t len, off_t offset) { return put(fd, data, len, offset); }
ssize_t pwrite64(int fd, const void *data, size_t len, off64_t offset) { return put(fd, data, len, offset); }

static int cut(int fd, int64_t size) {
	char buffer[4096];
	const char *path = name_of(fd, buffer, sizeof buffer);
	pthread_mutex_lock(&lock);
	int result = (int)syscall(SYS_ftruncate, fd, size);
	int kept = errno;
	if (path && result == 0)
		record(OP_TRUNCATE, path, (uint64_t)size, NULL, 0);
	errno = kept;
	pthread_mutex_unlock(&lock);
	return result;
}

int ftruncate(int fd, off_t size) { return cut(fd, size); }
int ftruncate64(int fd, off64_t size) { return cut(fd, size); }

static int sync_file(int fd, long number) {
	char buffer[4096];
	const char *path = name_of(fd, buffer, sizeof buffer);
	if (!path)
		return (int)syscall(number, fd);
	pthread_mutex_lock(&lock);
	int result = -1;
	if (*path && ++syncs == fail_sync) { // SQLite does not look whether a directory's sync failed
		errno = EIO;
	} else {
		result = (int)syscall(number, fd);
		if (result == 0)
			record(OP_SYNC, path, 0, NULL, 0);
	}
	pthread_mutex_unlock(&lock);
	return result;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int unlink(const char *path) {
	const char *ours = name(path);
	pthread_mutex_lock(&lock);
	int result = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
	int kept = errno;
	if (ours && result == 0)
		record(OP_UNLINK, ours, 0, NULL, 0);
	errno = kept;
	pthread_mutex_unlock(&lock);
	return result;
}
