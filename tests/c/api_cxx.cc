// C++: both headers compile without a wrapper of the caller's, and inside one; structures have the
// layout that C sees; a lock is taken from a class with a destructor.
// @test libs=dlm,lt plain
extern "C" {
#include <libdlm.h>
}
#include <dlm_ext.h>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <stdexcept>
#include <string>

static_assert(sizeof(dlm_lksb) == 24 && alignof(dlm_lksb) == 8, "struct dlm_lksb");
static_assert(offsetof(dlm_lksb, sb_status) == 0, "sb_status");
static_assert(offsetof(dlm_lksb, sb_lkid) == 4, "sb_lkid");
static_assert(offsetof(dlm_lksb, sb_flags) == 8, "sb_flags");
static_assert(offsetof(dlm_lksb, sb_lvbptr) == 16, "sb_lvbptr");
static_assert(sizeof(dlm_lshandle_t) == sizeof(void *), "dlm_lshandle_t");
static_assert(DLM_LVB_LEN == 32 && DLM_RESNAME_MAXLEN == 64 && DLM_LOCKSPACE_LEN == 64, "lengths");
static_assert(LKM_NLMODE == 0 && LKM_EXMODE == 5, "modes");
static_assert(ECANCEL == 65537 && EUNLOCK == 65538 && EINPROG == 65539, "statuses");

namespace {

class Space {
public:
	explicit Space(const std::string &name)
		: name_(name), ls_(dlm_create_lockspace(name.c_str(), 0600))
	{
		if (!ls_)
			throw std::runtime_error("create");
	}
	Space(const Space &) = delete;
	Space &operator=(const Space &) = delete;
	~Space() { dlm_release_lockspace(name_.c_str(), ls_, 2); }
	dlm_lshandle_t handle() const { return ls_; }

private:
	std::string name_;
	dlm_lshandle_t ls_;
};

class Lock {
public:
	Lock(const Space &space, const std::string &name) : ls_(space.handle()), lksb_(), done_(0)
	{
		if (dlm_ls_lock(ls_, LKM_EXMODE, &lksb_, 0, name.data(), name.size(), 0, completed,
				this, nullptr, nullptr))
			throw std::runtime_error("lock");
		await(1);
		if (lksb_.sb_status)
			throw std::runtime_error("status");
	}
	Lock(const Lock &) = delete;
	Lock &operator=(const Lock &) = delete;
	~Lock()
	{
		if (!dlm_ls_unlock(ls_, lksb_.sb_lkid, 0, &lksb_, this))
			await(2);
		if (lksb_.sb_status != EUNLOCK)
			std::printf("unlock: status %d\n", lksb_.sb_status);
	}
	uint64_t token() const
	{
		uint64_t token = 0;
		if (dlmx_token(ls_, lksb_.sb_lkid, &token))
			throw std::runtime_error("token");
		return token;
	}

private:
	static void completed(void *self) { static_cast<Lock *>(self)->done_++; }
	void await(int n)
	{
		while (done_ < n) {
			pollfd p = {dlm_ls_get_fd(ls_), POLLIN, 0};
			if (poll(&p, 1, 20000) != 1 || dlm_dispatch(p.fd))
				throw std::runtime_error("dispatch");
		}
	}
	dlm_lshandle_t ls_;
	dlm_lksb lksb_;
	int done_;
};

} // namespace

int main()
{
	try {
		Space space("c++");
		uint64_t first, second;
		{
			Lock lock(space, std::string("with\0nul", 8));
			first = lock.token();
		}
		{
			Lock lock(space, std::string("with\0nul", 8));
			second = lock.token();
		}
		if (second <= first)
			throw std::runtime_error("the second grant's token is not larger");
	} catch (const std::exception &e) {
		std::printf("%s failed\n", e.what());
		return 1;
	}
	return 0;
}
