/* Load for NATS JetStream: `nats_driver URL`. Reads one order a line, answers with one number a line:
 *   many SIZE SECONDS -> messages a second, published asynchronously, as many outstanding as WINDOW_BYTES allow
 *   depth1 SIZE COUNT -> median wait in microseconds
 */
#include <nats/nats.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WINDOW_ENTRIES = 2000, WINDOW_BYTES = 16 << 20, SIZE_MAX_BYTES = 1 << 20, SUBJECT_BYTES = 32 };
enum { WAIT_MS = 30000 }; /* As long as the other drivers wait: a slow disk is no error of the peer's. */

static natsConnection *connection;
static int stream_count;

static void must(natsStatus status, const char *what)
{
    if (status != NATS_OK) {
        fprintf(stderr, "%s: %s\n", what, natsStatus_GetText(status));
        exit(1);
    }
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* A stream of its own per order: three replicas in files. */
static jsCtx *new_stream(int size, char *subject)
{
    jsCtx *js;
    jsOptions options;
    jsStreamConfig config;
    const char *subjects[1] = {subject};
    int window = WINDOW_BYTES / size;

    snprintf(subject, SUBJECT_BYTES, "bench%d", ++stream_count);
    jsOptions_Init(&options);
    options.Wait = WAIT_MS;
    options.PublishAsync.MaxPending = window < WINDOW_ENTRIES ? window : WINDOW_ENTRIES;
    options.PublishAsync.StallWait = WAIT_MS; /* For room among the pending ones. */
    must(natsConnection_JetStream(&js, connection, &options), "jetstream");
    jsStreamConfig_Init(&config);
    config.Name = subject;
    config.Subjects = subjects;
    config.SubjectsLen = 1;
    config.Storage = js_FileStorage;
    config.Replicas = 3;
    must(js_AddStream(NULL, js, &config, NULL, NULL), "add stream");
    return js;
}

static double many(jsCtx *js, const char *subject, const char *payload, int size, int seconds)
{
    double begin = now_s();
    int64_t count = 0;
    while (now_s() < begin + seconds) {
        must(js_PublishAsync(js, subject, payload, size, NULL), "publish");
        count++;
    }
    must(js_PublishAsyncComplete(js, NULL), "complete");
    return (double)count / (now_s() - begin);
}

static double depth1(jsCtx *js, const char *subject, const char *payload, int size, int count)
{
    double *waits = malloc(sizeof(double) * (size_t)count);
    for (int number = 0; number < count; number++) {
        double begin = now_s();
        must(js_Publish(NULL, js, subject, payload, size, NULL, NULL), "publish");
        waits[number] = now_s() - begin;
    }
    qsort(waits, (size_t)count, sizeof(double), ascending);
    double median = waits[count / 2] * 1e6;
    free(waits);
    return median;
}

int main(int argc, char **argv)
{
    char order[16], subject[SUBJECT_BYTES];
    char *payload = malloc(SIZE_MAX_BYTES);
    int size, amount;
    if (argc != 2)
        return 2;
    for (int at = 0; at < SIZE_MAX_BYTES; at++)
        payload[at] = (char)random();
    must(natsConnection_ConnectTo(&connection, argv[1]), "connect");
    puts("ready");
    fflush(stdout);
    while (scanf("%15s %d %d", order, &size, &amount) == 3) {
        jsCtx *js = new_stream(size, subject);
        printf("%f\n", strcmp(order, "many") == 0 ? many(js, subject, payload, size, amount)
                                                  : depth1(js, subject, payload, size, amount));
        fflush(stdout);
        js_DeleteStream(js, subject, NULL, NULL);
        jsCtx_Destroy(js);
    }
    natsConnection_Destroy(connection);
    free(payload);
    return 0;
}
