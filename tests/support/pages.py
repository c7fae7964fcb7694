"""Where memory lies: source text for programs of `run_child`."""

NODES_OF = '''
import collections, ctypes

def nodes_of(blocks):
    """How many pages of some (address, size) lie on each node; -2 (ENOENT) stands for those never touched.

    Only without NUMA balancing: move_pages() has no answer for pages that it has in hand (ENOENT or EFAULT
    for data that is there, Linux 6.1), and get_mempolicy() makes it move them to the node of who asks.
    """
    pages = {page for address, size in blocks for page in range(address >> 12, (address + size + 4095) >> 12)}
    addresses = (ctypes.c_void_p * len(pages))(*(page << 12 for page in sorted(pages)))
    nodes, MOVE_PAGES = (ctypes.c_int * len(pages))(), 279  # of x86-64
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.syscall(MOVE_PAGES, 0, ctypes.c_ulong(len(pages)), addresses, None, nodes, 0)
    assert status == 0, ctypes.get_errno()
    return dict(collections.Counter(nodes))
'''
