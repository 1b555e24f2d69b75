/*
 * A file that includes nothing but <libdlm.h>: the header needs nothing before it.
 * @test libs=dlm,lt plain
 */
#include <libdlm.h>

static struct dlm_lksb lksb;
static int done;

static void completed(void *arg)
{
	done += *(int *)arg;
}

int main(void)
{
	dlm_lshandle_t ls = dlm_create_lockspace("only", 0600);
	int one = 1, tries;

	if (!ls)
		return 1;
	if (dlm_ls_lock(ls, LKM_EXMODE, &lksb, LKF_NOQUEUE, "n", 1, 0, completed, &one, 0, 0))
		return 2;
	for (tries = 0; !done && tries < 100000000; tries++)
		if (dlm_dispatch(dlm_ls_get_fd(ls)))
			return 3;
	if (!done || lksb.sb_status)
		return 4;
	if (dlm_ls_unlock(ls, lksb.sb_lkid, 0, &lksb, &one))
		return 5;
	for (tries = 0; done < 2 && tries < 100000000; tries++)
		if (dlm_dispatch(dlm_ls_get_fd(ls)))
			return 6;
	if (lksb.sb_status != EUNLOCK)
		return 7;
	return dlm_release_lockspace("only", ls, 2) ? 8 : 0;
}
