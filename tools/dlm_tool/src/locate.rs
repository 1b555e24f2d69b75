//! A name as its master knows it, whichever node that is.

use dlm_ipc::control::{ControlReply, ControlRequest, LocatedRecord, ResourceRecord};

use crate::context::{Context, Trouble};
use crate::table::Table;

/// One resource, also one that this node masters with queues too long for one answer.
pub(crate) fn locate(
    cx: &mut Context<'_>,
    lockspace: &[u8],
    name: &[u8],
) -> Result<LocatedRecord, Trouble> {
    let request = ControlRequest::Locate { lockspace: lockspace.into(), name: name.into() };
    let mut found = cx.ask(&request, |reply| match reply {
        ControlReply::Located(found) => Some(found),
        _ => None,
    })?;
    let here = found.resource.as_ref().is_some_and(|resource| resource.master == 0);
    if found.omitted > 0
        && here
        && let Some(whole) = in_table(cx, lockspace, name)?
    {
        found = LocatedRecord { resource: Some(whole), omitted: 0, ..found };
    }
    Ok(found)
}

fn in_table(
    cx: &mut Context<'_>,
    lockspace: &[u8],
    name: &[u8],
) -> Result<Option<ResourceRecord>, Trouble> {
    let mut table = Table::new(&mut *cx.daemon, lockspace);
    while let Some(resource) = table.next()? {
        if resource.name == name {
            return Ok(Some(resource));
        }
    }
    Ok(None)
}
