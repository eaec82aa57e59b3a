// Synchronises a neutrino light client, which speaks v1 only, with one node through a SOCKS5 proxy:
//
//	neutrino FOLDER PROXY NODE BLOCKS
//
// FOLDER is empty, PROXY and NODE are IP:PORT, and NODE has BLOCKS blocks of regtest. Exits with 0 once the
// client has all headers and all compact filters, and has fetched the last block.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/btcsuite/btcd/btcutil/gcs/builder"
	"github.com/btcsuite/btcd/chaincfg"
	"github.com/btcsuite/btcd/wire"
	"github.com/btcsuite/btcwallet/walletdb"
	_ "github.com/btcsuite/btcwallet/walletdb/bdb"
	"github.com/lightninglabs/neutrino"
	"golang.org/x/net/proxy"
)

const limit = 60 * time.Second

func run(folder, through, node string, blocks int) error {
	socks, err := proxy.SOCKS5("tcp", through, nil, proxy.Direct)
	if err != nil {
		return err
	}
	database, err := walletdb.Create("bdb", filepath.Join(folder, "neutrino.db"), true, limit)
	if err != nil {
		return err
	}
	defer database.Close()
	client, err := neutrino.NewChainService(neutrino.Config{
		DataDir:      folder,
		Database:     database,
		ChainParams:  chaincfg.RegressionNetParams,
		ConnectPeers: []string{node},
		Dialer: func(address net.Addr) (net.Conn, error) {
			return socks.Dial("tcp", address.String())
		},
	})
	if err != nil {
		return err
	}
	if err := client.Start(context.Background()); err != nil {
		return err
	}
	defer client.Stop()
	for start := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		best, err := client.BestBlock()
		if err != nil {
			return err
		}
		if int(best.Height) < blocks || !client.IsCurrent() {
			if time.Since(start) > limit {
				return fmt.Errorf("%d of %d blocks after %v", best.Height, blocks, limit)
			}
			continue
		}
		block, err := client.GetBlock(best.Hash)
		if err != nil {
			return err
		}
		filter, err := client.GetCFilter(best.Hash, wire.GCSFilterRegular)
		if err != nil {
			return err
		}
		expected, err := builder.BuildBasicFilter(block.MsgBlock(), nil)
		if err != nil {
			return err
		}
		if filter.N() != expected.N() {
			return fmt.Errorf("the filter of block %v has %d elements, not %d", best.Hash, filter.N(), expected.N())
		}
		fmt.Printf("neutrino: %d blocks\n", best.Height)
		return nil
	}
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: neutrino FOLDER PROXY NODE BLOCKS")
		os.Exit(2)
	}
	blocks, err := strconv.Atoi(os.Args[4])
	if err == nil {
		err = run(os.Args[1], os.Args[2], os.Args[3], blocks)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
