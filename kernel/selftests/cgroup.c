// SPDX-License-Identifier: GPL-2.0-only
/* Control groups, version 2. */
#include "cgroup.h"
#include "files.h"
#include "tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static void enable(const char *group)
{
	static const char *const controllers[] = { "+cpu", "+cpuset", "+memory" };

	for (int n = 0; n < 3; n++)
		file_need(controllers[n], "%s/cgroup.subtree_control", group);
}

const char *cgroup_root(void)
{
	static char root[64];

	if (!root[0]) {
		mkdir("/tmp", 0777);
		snprintf(root, sizeof(root), "/tmp/cgroup");
		if (mount_once("cgroup2", root))
			tap_bail("no cgroup2");
		enable(root);
	}
	return root;
}

void cgroup_make(const char *name)
{
	char path[FILE_PATH], *below;

	snprintf(path, sizeof(path), "%s/%s", cgroup_root(), name);
	below = strchr(name, '/') ? strrchr(path, '/') : NULL;
	if (below) {
		*below = '\0';
		if (mkdir(path, 0755) && errno != EEXIST)
			tap_bail("%s: %s", path, strerror(errno));
		enable(path);
		*below = '/';
	}
	if (mkdir(path, 0755) && errno != EEXIST)
		tap_bail("%s: %s", path, strerror(errno));
}

void cgroup_enter(const char *name)
{
	file_need("0", "%s/%s/cgroup.procs", cgroup_root(), name ? name : ".");
}

long long cgroup_stat(const char *name, const char *file, const char *field)
{
	char path[FILE_PATH];

	snprintf(path, sizeof(path), "%s/%s/%s", cgroup_root(), name, file);
	return file_field(path, field);
}
