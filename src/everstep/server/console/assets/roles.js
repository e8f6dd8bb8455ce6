// What a role may do; the service decides, and this only leaves out what it would refuse.

const ROLES = ["viewer", "reader", "approver", "operator", "admin"];

/** Whether who looks may do what a role may. */
export const may = (me, role) => me.acts && sees(me, role);

/** Whether who looks may see what a role may. */
export const sees = (me, role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role);
