/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A program that loads the shared library, makes a mover with threads, closes the library, forks and goes on with the
 * mover: the code must still be there. Usage: unload LIBRARY
 */
#include <dlfcn.h>
#include <memferry.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!library) {
		fprintf(stderr, "dlopen: %s\n", dlerror());
		return 1;
	}
	int (*new_mover)(const memferry_options *, memferry_mover **);
	void (*free_mover)(memferry_mover *);
	*(void **)&new_mover = dlsym(library, "memferry_new");
	*(void **)&free_mover = dlsym(library, "memferry_free");
	if (!new_mover || !free_mover)
		return 1;
	memferry_mover *mover;
	new_mover(NULL, &mover);
	if (dlclose(library))
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
