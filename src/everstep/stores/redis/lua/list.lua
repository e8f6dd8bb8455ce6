-- Returns rows of runs, the newest first.
-- ARGV: index, limit, the run before which to begin, wanted flow and status, which kind of mark (1 of damage, 2 of a
-- pause, 0 whichever), and fields that must be there.
local newest = '+inf'
if ARGV[4] ~= '' then
  newest = number_of(ARGV[4])
  if not newest then
    return {}
  end
  newest = '(' .. newest
end
local limit, rows, seen = tonumber(ARGV[3]), {}, 0
local PAGE = ARGV[5] == '' and ARGV[6] == '' and ARGV[7] == '0' and #ARGV == 7 and limit or 100

local function has_all(row)
  if ARGV[7] ~= '0' then
    local f = redis.call('HMGET', row, 'repair', 'status')
    local is_damage = f[1] and string.sub(f[1], 1, 14) ~= 'paused: since '
    if not (ARGV[7] == '1' and is_damage or ARGV[7] == '2' and is_pause(f[1], f[2])) then
      return false
    end
  end
  for k = 8, #ARGV do
    if redis.call('HEXISTS', row, ARGV[k]) == 0 then
      return false
    end
  end
  return true
end

while limit > 0 do
  local page = redis.call('ZREVRANGEBYSCORE', P .. ARGV[2], newest, '-inf', 'LIMIT', seen, PAGE)
  for _, run_id in ipairs(page) do
    local f = redis.call('HMGET', row_of(run_id), 'flow', 'status')
    if f[1] and (ARGV[5] == '' or ARGV[5] == '=' .. f[1]) and (ARGV[6] == '' or ARGV[6] == f[2])
      and has_all(row_of(run_id)) then
      rows[#rows + 1] = { run_id, redis.call('HGETALL', row_of(run_id)) }
      if #rows == limit then
        return rows
      end
    end
  end
  if #page < PAGE then
    break
  end
  seen = seen + PAGE
end
return rows
