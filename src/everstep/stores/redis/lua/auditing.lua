-- Keeps a row of the audit log, once: its id, its run or '', and what else is kept of it. Numbers only grow.
local function keep_audit(row)
  if redis.call('HEXISTS', P .. 'audit:ids', row[1]) == 1 then
    return
  end
  local number = redis.call('INCR', P .. 'audit:number')
  redis.call('HSET', P .. 'audit:ids', row[1], number)
  redis.call('HSET', P .. 'audit:rows', number, clock() .. ' ' .. row[3])
  redis.call('ZADD', P .. 'audit', number, number)
  if row[2] ~= '' then
    redis.call('ZADD', P .. 'audit:run:' .. row[2], number, number)
  end
end

-- True if what a row is of is to be done once, and the row is there.
local function is_told(row)
  return row and row[4] == 'once' and redis.call('HEXISTS', P .. 'audit:ids', row[1]) == 1
end

-- True if what an argument holds the row of is not to be done, as that row is there.
local function was_told(argument)
  return is_told(argument and argument ~= '' and cmsgpack.unpack(argument))
end

-- Keeps the row that an argument holds, if the act has a name.
local function tell(argument)
  if argument and argument ~= '' then
    keep_audit(cmsgpack.unpack(argument))
  end
end
