// SPDX-License-Identifier: GPL-2.0-only
/* Kernel modules. */
#include "modules.h"
#include "files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(const char *const *command)
{
	int status;
	pid_t pid;

	pid = fork();
	if (!pid) {
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		execvp(command[0], (char *const *)command);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return -errno;
	return status ? -ENOENT : 0;
}

static char wanted[64];
static char found[FILE_PATH];

static int find_module(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	if (type == FTW_F && !strcmp(path + ftw->base, wanted)) {
		snprintf(found, sizeof(found), "%s", path);
		return 1;
	}
	return 0;
}

static const char *given_path(const char *name)
{
	char variable[64];
	unsigned int i;

	for (i = 0; name[i] && i < sizeof(variable) - 4; i++)
		variable[i] = toupper(name[i]);
	snprintf(variable + i, sizeof(variable) - i, "_KO");
	return getenv(variable);
}

/* Parameters of the kernel's command line, as modprobe takes them, and then @given, which win. */
static void all_parameters(char *text, size_t size, const char *name, const char *given)
{
	char line[4096], *word, *left;
	size_t len = strlen(name), used = 0;

	if (file_read(line, sizeof(line), "/proc/cmdline"))
		line[0] = '\0';
	for (word = strtok_r(line, " ", &left); word; word = strtok_r(NULL, " ", &left))
		if (!strncmp(word, name, len) && word[len] == '.' && used < size)
			used += snprintf(text + used, size - used, "%s ", word + len + 1);
	if (used < size)
		snprintf(text + used, size - used, "%s", given);
}

static int load_file(const char *name, const char *given_parameters)
{
	char parameters[256];
	const char *given = given_path(name);
	struct utsname kernel;
	char tree[FILE_PATH];
	int fd, error = 0;

	if (given) {
		snprintf(found, sizeof(found), "%s", given);
	} else {
		uname(&kernel);
		snprintf(tree, sizeof(tree), "/lib/modules/%s", kernel.release);
		snprintf(wanted, sizeof(wanted), "%s.ko", name);
		found[0] = '\0';
		nftw(tree, find_module, 16, FTW_PHYS);
	}
	fd = open(found, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	all_parameters(parameters, sizeof(parameters), name, given_parameters);
	if (syscall(SYS_finit_module, fd, parameters, 0))
		error = -errno;
	close(fd);
	return error == -EEXIST ? 0 : error;
}

int module_load(const char *name, const char *parameters)
{
	const char *const modprobe[] = { "modprobe", name, parameters[0] ? parameters : NULL, NULL };
	const char *const busybox[] = { "busybox", "modprobe", name,
					parameters[0] ? parameters : NULL, NULL };
	int error;

	if (module_loaded(name))
		return 0;
	error = load_file(name, parameters);
	/* modprobe also loads what the module needs. */
	if (error && run(modprobe))
		run(busybox);
	return module_loaded(name) ? 0 : error ? error : -ENOENT;
}

void module_need(const char *name, const char *parameters, ...)
{
	char text[128];
	va_list args;
	int error;

	va_start(args, parameters);
	vsnprintf(text, sizeof(text), parameters, args);
	va_end(args);
	error = module_load(name, text);
	if (error)
		tap_bail("module %s %s: %s", name, text, strerror(-error));
}

int module_unload(const char *name)
{
	return syscall(SYS_delete_module, name, O_NONBLOCK) ? -errno : 0;
}

bool module_loaded(const char *name)
{
	char state[16];

	return !file_read(state, sizeof(state), "/sys/module/%s/initstate", name) &&
	       !strcmp(state, "live");
}
