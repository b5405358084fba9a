/* The least that a client must do: send GETs of ranges over kept connections, and receive the bodies into memory that is used again.
 *
 * Nothing is parsed but Content-Length's end of the head, nothing checked, nothing kept. What it costs is the kernel's copy and its
 * TCP; benchmarks/bench_weights_http.py compiles it and measures ours beside it.
 *
 *     receive_loop PORT THREADS < lines of "PATH START END"
 *
 * prints wall and processor seconds and bytes, as JSON. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_RANGES = 65536, PATH_BYTES = 512, HEAD_BYTES = 8192 };

struct range {
    char path[PATH_BYTES];
    long start, end;
};

static struct range *ranges;
static int count, port;
static long largest;
static atomic_int next_range;
static atomic_long received;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static int connect_to_server(void) {
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

static void *work(void *unused) {
    char head[HEAD_BYTES + 1], request[PATH_BYTES + 256];
    char *memory = malloc((size_t)largest);
    int fd = connect_to_server(), number;
    (void)unused;
    if (!memory) fail("malloc");
    while ((number = atomic_fetch_add(&next_range, 1)) < count) {
        const struct range *wanted = &ranges[number];
        long size = wanted->end - wanted->start, got = 0, head_bytes = 0;
        char *body = NULL;
        int length = snprintf(request, sizeof request, "GET %s HTTP/1.1\r\nHost: 127.0.0.1\r\nRange: bytes=%ld-%ld\r\n\r\n",
                              wanted->path, wanted->start, wanted->end - 1);
        if (send(fd, request, (size_t)length, 0) != length) fail("send");
        while (!body) {
            long more = recv(fd, head + head_bytes, (size_t)(HEAD_BYTES - head_bytes), 0);
            if (more <= 0) fail("recv");
            head_bytes += more;
            head[head_bytes] = 0;
            if ((body = strstr(head, "\r\n\r\n"))) body += 4;
        }
        if (strncmp(head, "HTTP/1.1 206", 12)) {
            fprintf(stderr, "%.*s\n", 40, head);
            exit(1);
        }
        got = head_bytes - (body - head);
        memcpy(memory, body, (size_t)got);
        while (got < size) {
            long more = recv(fd, memory + got, (size_t)(size - got), 0);
            if (more <= 0) fail("recv");
            got += more;
        }
        atomic_fetch_add(&received, got);
    }
    close(fd);
    free(memory);
    return NULL;
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    int threads = argc == 3 ? atoi(argv[2]) : 0;
    pthread_t *thread = calloc((size_t)(threads > 0 ? threads : 1), sizeof *thread);
    struct rusage usage;
    double begun, wall;
    if (threads < 1) {
        fprintf(stderr, "usage: receive_loop PORT THREADS\n");
        return 2;
    }
    port = atoi(argv[1]);
    ranges = malloc(MOST_RANGES * sizeof *ranges);
    while (count < MOST_RANGES && scanf("%511s %ld %ld", ranges[count].path, &ranges[count].start, &ranges[count].end) == 3) {
        long size = ranges[count].end - ranges[count].start;
        if (size > largest) largest = size;
        count++;
    }
    begun = seconds();
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread[i], NULL, work, NULL)) fail("pthread_create");
    for (int i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    wall = seconds() - begun;
    getrusage(RUSAGE_SELF, &usage);
    printf("{\"wall_s\": %.6f, \"cpu_s\": %.6f, \"bytes\": %ld}\n", wall,
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6,
           atomic_load(&received));
    return 0;
}
