/* Record every system call by which a program and its threads change files below a folder.
 *
 * usage: recorder OUTPUT FOLDER PROGRAM [ARGUMENT...]
 *
 * In: a program, run under ptrace, so that nothing it does passes unseen, whatever library makes
 * the call. Out: OUTPUT, one frame per successful call in the order in which the calls returned:
 * a head (struct head, native byte order), the path, a second path, the bytes written. A way to
 * change a file that the frames cannot express (a shared writable mapping, a copy in the kernel, an
 * io_uring) becomes a frame of the kind OTHER. Exits as the program does; 125 if it cannot trace.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <linux/ptrace.h>
#include <unistd.h>

enum kind { WRITE = 1, SYNC, TRUNCATE, ALLOCATE, CREATE, RENAME, REMOVE, MKDIR, OTHER };

struct head {
    uint32_t kind, thread, path, second;
    uint64_t offset, size, data;
};

enum { TASKS = 4096, VECTORS = 1024 };

struct task {
    pid_t id;
    int active;
    struct head head;
    char path[PATH_MAX], second[PATH_MAX];
    char *data;
};

static struct task tasks[TASKS];
static FILE *output;
static const char *root;

static void fail(const char *what) {
    perror(what);
    exit(125);
}

static struct task *task_of(pid_t id) {
    struct task *unused = NULL;
    for (int i = 0; i < TASKS; i++) {
        if (tasks[i].id == id) return &tasks[i];
        if (!tasks[i].id && !unused) unused = &tasks[i];
    }
    if (!unused) fail("too many threads");
    memset(unused, 0, sizeof *unused);
    unused->id = id;
    return unused;
}

static int below(const char *path) {
    size_t length = strlen(root);
    return !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static void link_of(char *into, const char *form, pid_t id, long number) {
    char name[64];
    snprintf(name, sizeof name, form, id, number);
    ssize_t length = readlink(name, into, PATH_MAX - 1);
    into[length < 0 ? 0 : length] = 0;
}

static void path_of(char *into, pid_t id, long descriptor) {
    link_of(into, "/proc/%d/fd/%ld", id, (int)descriptor);
}

/* The bytes at an address of the program. */
static void peek(pid_t id, uint64_t address, void *into, size_t size) {
    struct iovec here = {into, size}, there = {(void *)(uintptr_t)address, size};
    if (process_vm_readv(id, &here, 1, &there, 1, 0) != (ssize_t)size) fail("process_vm_readv");
}

static void text(pid_t id, uint64_t address, char *into) {
    for (int i = 0; i < PATH_MAX - 1; i++) {
        peek(id, address + i, into + i, 1);
        if (!into[i]) return;
    }
    into[PATH_MAX - 1] = 0;
}

/* The absolute path of a name that a call gives relative to a folder. */
static void named(char *into, pid_t id, int folder, uint64_t address) {
    char name[PATH_MAX], base[PATH_MAX];
    text(id, address, name);
    if (name[0] == '/') {
        strcpy(into, name);
        return;
    }
    if (folder == AT_FDCWD) link_of(base, "/proc/%d/cwd", id, 0);
    else path_of(base, id, folder);
    if (snprintf(into, PATH_MAX, "%s/%s", base, name) >= PATH_MAX) fail("path too long");
}

static uint64_t position(pid_t id, long descriptor) {
    char name[64], line[256];
    unsigned long long at = 0;
    snprintf(name, sizeof name, "/proc/%d/fdinfo/%ld", id, descriptor);
    FILE *info = fopen(name, "r");
    if (!info) fail(name);
    if (!fgets(line, sizeof line, info) || sscanf(line, "pos: %llu", &at) != 1) fail("fdinfo");
    fclose(info);
    return at;
}

static void start(struct task *one, enum kind kind, uint64_t offset, uint64_t size) {
    one->head = (struct head){.kind = kind, .thread = one->id, .offset = offset, .size = size};
    one->active = below(one->path) || below(one->second);
}

static void start_write(struct task *one, long descriptor, uint64_t offset) {
    path_of(one->path, one->id, descriptor);
    if (!below(one->path)) return;
    if (offset == UINT64_MAX) {
        offset = position(one->id, descriptor);
        char name[64];
        struct stat state;
        snprintf(name, sizeof name, "/proc/%d/fd/%ld", one->id, descriptor);
        char info[PATH_MAX];
        snprintf(info, sizeof info, "/proc/%d/fdinfo/%ld", one->id, descriptor);
        FILE *file = fopen(info, "r");
        char line[256];
        unsigned flags = 0;
        while (file && fgets(line, sizeof line, file)) sscanf(line, "flags: %o", &flags);
        if (file) fclose(file);
        if (flags & O_APPEND && !stat(name, &state)) offset = state.st_size;
    }
    start(one, WRITE, offset, 0);
}

static void take(struct task *one, uint64_t address, uint64_t size) {
    if (!one->active) return;
    one->data = realloc(one->data, one->head.data + size + 1);
    if (!one->data) fail("realloc");
    peek(one->id, address, one->data + one->head.data, size);
    one->head.data += size;
}

static void take_vectors(struct task *one, uint64_t address, uint64_t count) {
    struct iovec vectors[VECTORS];
    if (!one->active) return;
    if (count > VECTORS) fail("too many vectors");
    peek(one->id, address, vectors, count * sizeof *vectors);
    for (uint64_t i = 0; i < count; i++)
        take(one, (uintptr_t)vectors[i].iov_base, vectors[i].iov_len);
}

static void on_file(struct task *one, enum kind kind, long descriptor, uint64_t a, uint64_t b) {
    path_of(one->path, one->id, descriptor);
    start(one, kind, a, b);
}

static void start_open(struct task *one, int folder, uint64_t name, uint64_t flags) {
    struct stat state;
    if ((flags & O_TMPFILE) == O_TMPFILE) {
        named(one->path, one->id, folder, name);
        start(one, OTHER, 0, 0);
        return;
    }
    if (!(flags & (O_CREAT | O_TRUNC | O_DIRECT | O_DSYNC))) return;
    named(one->path, one->id, folder, name);
    int exists = !stat(one->path, &state);
    if (flags & (O_DIRECT | O_DSYNC)) start(one, OTHER, 0, 0);
    else if (!exists && flags & O_CREAT) start(one, CREATE, 0, 0);
    else if (exists && flags & O_TRUNC && state.st_size) start(one, TRUNCATE, 0, 0);
}

static void two(struct task *one, int from, uint64_t a, int to, uint64_t b, enum kind kind) {
    named(one->path, one->id, from, a);
    named(one->second, one->id, to, b);
    start(one, kind, 0, 0);
}

static void one_name(struct task *one, enum kind kind, int folder, uint64_t name, uint64_t size) {
    named(one->path, one->id, folder, name);
    start(one, kind, 0, size);
}

static void enter(struct task *one, const struct ptrace_syscall_info *info) {
    const uint64_t *a = (const uint64_t *)info->entry.args;
    one->active = 0;
    one->path[0] = one->second[0] = 0;
    one->head.data = 0;
    switch (info->entry.nr) {
    case SYS_write: start_write(one, a[0], UINT64_MAX); take(one, a[1], a[2]); break;
    case SYS_pwrite64: start_write(one, a[0], a[3]); take(one, a[1], a[2]); break;
    case SYS_writev: start_write(one, a[0], UINT64_MAX); take_vectors(one, a[1], a[2]); break;
    case SYS_pwritev:
    case SYS_pwritev2: start_write(one, a[0], a[3]); take_vectors(one, a[1], a[2]); break;
    case SYS_fsync:
    case SYS_fdatasync: on_file(one, SYNC, a[0], 0, 0); break;
    case SYS_ftruncate: on_file(one, TRUNCATE, a[0], 0, a[1]); break;
    case SYS_truncate: one_name(one, TRUNCATE, AT_FDCWD, a[0], a[1]); break;
    case SYS_fallocate: on_file(one, a[1] ? OTHER : ALLOCATE, a[0], a[2], a[3]); break;
#ifdef SYS_openat2
    case SYS_openat2: one_name(one, OTHER, a[0], a[1], 0); break;
#endif
    case SYS_openat: start_open(one, a[0], a[1], a[2]); break;
    case SYS_renameat2:
        two(one, a[0], a[1], a[2], a[3], a[4] & ~1UL ? OTHER : RENAME);
        break;
    case SYS_unlinkat: one_name(one, REMOVE, a[0], a[1], a[2]); break;
    case SYS_mkdirat: one_name(one, MKDIR, a[0], a[1], 0); break;
    case SYS_linkat: two(one, a[0], a[1], a[2], a[3], OTHER); break;
    case SYS_symlinkat: one_name(one, OTHER, a[1], a[2], 0); break;
    case SYS_copy_file_range: on_file(one, OTHER, a[2], 0, 0); break;
    case SYS_splice: on_file(one, OTHER, a[2], 0, 0); break;
    case SYS_sendfile: on_file(one, OTHER, a[0], 0, 0); break;
    case SYS_mmap:
        if ((a[2] & PROT_WRITE) && (a[3] & MAP_TYPE) != MAP_PRIVATE && !(a[3] & MAP_ANONYMOUS))
            on_file(one, OTHER, a[4], 0, 0);
        break;
    case SYS_io_uring_setup: strcpy(one->path, root); start(one, OTHER, 0, 0); break;
#ifdef SYS_rename
    case SYS_open: start_open(one, AT_FDCWD, a[0], a[1]); break;
    case SYS_creat: start_open(one, AT_FDCWD, a[0], O_CREAT | O_TRUNC); break;
    case SYS_rename: two(one, AT_FDCWD, a[0], AT_FDCWD, a[1], RENAME); break;
    case SYS_unlink: one_name(one, REMOVE, AT_FDCWD, a[0], 0); break;
    case SYS_rmdir: one_name(one, REMOVE, AT_FDCWD, a[0], AT_REMOVEDIR); break;
    case SYS_mkdir: one_name(one, MKDIR, AT_FDCWD, a[0], 0); break;
    case SYS_link: two(one, AT_FDCWD, a[0], AT_FDCWD, a[1], OTHER); break;
    case SYS_symlink: one_name(one, OTHER, AT_FDCWD, a[1], 0); break;
#endif
#ifdef SYS_renameat
    case SYS_renameat: two(one, a[0], a[1], a[2], a[3], RENAME); break;
#endif
    }
}

static void leave(struct task *one, const struct ptrace_syscall_info *info) {
    int64_t result = info->exit.rval;
    if (!one->active || info->exit.is_error) return;
    one->active = 0;
    struct head *head = &one->head;
    if (head->kind == WRITE) head->data = result;
    head->path = strlen(one->path);
    head->second = strlen(one->second);
    fwrite(head, sizeof *head, 1, output);
    fwrite(one->path, head->path, 1, output);
    fwrite(one->second, head->second, 1, output);
    fwrite(one->data, head->data, 1, output);
    if (fflush(output)) fail("output");
}

static void run(char **command) {
    if (ptrace(PTRACE_TRACEME, 0, 0, 0)) fail("PTRACE_TRACEME");
    raise(SIGSTOP);
    execvp(command[0], command);
    fail(command[0]);
}

/* One stop of a traced task; return the signal to hand on. */
static int stopped(pid_t id, int status, int known) {
    int number = WSTOPSIG(status);
    if (number == (SIGTRAP | 0x80)) {
        struct ptrace_syscall_info info;
        if (ptrace(PTRACE_GET_SYSCALL_INFO, id, sizeof info, &info) < 0) return 0;
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY) enter(task_of(id), &info);
        else if (info.op == PTRACE_SYSCALL_INFO_EXIT) leave(task_of(id), &info);
        return 0;
    }
    if (status >> 16 || number == SIGTRAP || (number == SIGSTOP && !known)) return 0;
    return number;
}

int main(int count, char **arguments) {
    if (count < 4) return 125;
    root = arguments[2];
    output = fopen(arguments[1], "wb");
    if (!output) fail(arguments[1]);
    pid_t first = fork();
    if (!first) run(arguments + 3);
    int status, code = 125;
    long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                   PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
    if (waitpid(first, &status, 0) != first || !WIFSTOPPED(status)) fail("the program");
    if (ptrace(PTRACE_SETOPTIONS, first, 0, options)) fail("PTRACE_SETOPTIONS");
    task_of(first);
    ptrace(PTRACE_SYSCALL, first, 0, 0);
    for (pid_t id; (id = waitpid(-1, &status, __WALL)) > 0;) {
        if (!WIFSTOPPED(status)) {
            if (id == first) code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            struct task *one = task_of(id);
            free(one->data);
            memset(one, 0, sizeof *one);
            continue;
        }
        int known = 0;
        for (int i = 0; i < TASKS && !known; i++) known = tasks[i].id == id;
        int number = stopped(id, status, known);
        task_of(id);
        ptrace(PTRACE_SYSCALL, id, 0, number);
    }
    fclose(output);
    return code;
}
