/* no_threads.c: loaded before a program (LD_PRELOAD), it lets none of its threads begin. Who runs
 * to the end beside it has nothing for the thread sanitizer to find (tests/all). */
#include <pthread.h>
#include <unistd.h>

__attribute__((visibility("default"))) int pthread_create(
    pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    static const char text[] = "no_threads.c: a thread was started\n";

    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(70);
}
