/* no_threads.c: an LD_PRELOAD library that ends the program when it starts a thread. A program
 * that runs to its end with it has no threads, so the thread sanitizer cannot find anything in
 * it (tests/all). */
#include <pthread.h>
#include <unistd.h>

__attribute__((visibility("default"))) int pthread_create(
    pthread_t *out, const pthread_attr_t *attr, void *(*fn)(void *arg), void *arg)
{
    static const char text[] = "no_threads.c: a thread was started\n";

    (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
    _exit(70);
}
