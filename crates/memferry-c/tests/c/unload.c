/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that loads the shared library, makes a mover, closes the library, forks and goes on with the mover: the
 * code must still be there. Destructors of thread-locals keep a library loaded by chance, so the mover has no worker
 * threads and is made by a thread that ends. Usage: unload LIBRARY
 */
#include <dlfcn.h>
#include <memferry.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int (*new_mover)(const memferry_options *, memferry_mover **);
static void (*free_mover)(memferry_mover *);

static void *make(void *mover)
{
	memferry_options options = { .size = sizeof options, .migrator = MEMFERRY_BATCH };

	new_mover(&options, (memferry_mover **)mover);
	return NULL;
}

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library) {
		fprintf(stderr, "dlopen: %s\n", dlerror());
		return 1;
	}
	*(void **)&new_mover = dlsym(library, "memferry_new");
	*(void **)&free_mover = dlsym(library, "memferry_free");
	if (!new_mover || !free_mover)
		return 1;
	memferry_mover *mover = NULL;
	pthread_t maker;
	if (pthread_create(&maker, NULL, make, &mover) || pthread_join(maker, NULL) || dlclose(library))
		return 1;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int status = 1;
	if (child < 0 || waitpid(child, &status, 0) != child || status)
		return 1;
	free_mover(mover);
	puts("used after dlclose");
	return 0;
}
